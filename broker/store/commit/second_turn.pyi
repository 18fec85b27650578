from typing import final

@final
class SecondTurn:
    is_hurried: bool
