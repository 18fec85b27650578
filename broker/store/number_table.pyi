class NumberTable:
    count: int
