"""Loads the shared library into Python 50 times, behind modules that use thread-local storage themselves."""
import _ctypes
import ctypes
import sys

for module in ("ssl", "sqlite3", "lzma", "bz2", "hashlib", "decimal", "multiprocessing"):
    try:
        __import__(module)
    except ImportError:
        print(f"without {module}")

for _ in range(50):
    library = ctypes.CDLL(sys.argv[1])
    library.sluice_status_name.restype = ctypes.c_char_p
    assert library.sluice_status_name(-20) == b"SLUICE_TIMEOUT"
    assert library.sluice_abi_version() == 1
    handle = library._handle
    del library
    _ctypes.dlclose(handle)
