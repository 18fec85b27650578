# Functions of Cython that all compiled modules call. Their C code is Cython's own and is written
# when this module is built (`tools/translation.py`).
