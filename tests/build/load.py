"""
Loads the shared library into Python 50 times, behind modules that use thread-local storage themselves, moves a buffer
with it each time, and unloads it.
"""
import _ctypes
import ctypes
import sys

for module in ("ssl", "sqlite3", "lzma", "bz2", "hashlib", "decimal", "multiprocessing"):
    try:
        __import__(module)
    except ImportError:
        print(f"without {module}")


class RuntimeOptions(ctypes.Structure):
    """The first fields of struct sluice_runtime_options; the rest is zero, which means the defaults."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("delivery", ctypes.c_uint32),
        ("backend", ctypes.c_char_p),
        ("event_base", ctypes.c_void_p),
        ("on_event", ctypes.c_void_p),
        ("on_log", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
        ("log_level", ctypes.c_uint32),
        ("world", ctypes.c_uint32),
    ]


class Region(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("offset", "row_bytes", "rows", "pitch")]


U8 = 1
SOURCE, DESTINATION = 0, 1
FOREVER = ctypes.c_uint64(2**64 - 1)


def refit(library):
    """Open, seal, move a buffer, close: all threads of the library come and go."""

    def check(status):
        assert status == 0, status

    content = b"seven times seven weights"
    source = ctypes.create_string_buffer(content)
    destination = ctypes.create_string_buffer(len(content) + 1)
    bytes_ = ctypes.c_uint64(len(content))
    whole = Region(0, len(content), 1, len(content))
    options = RuntimeOptions(size=ctypes.sizeof(RuntimeOptions), backend=b"host", world=1)
    runtime, plan, transfer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(library.sluice_runtime_open(ctypes.byref(options), ctypes.byref(runtime)))
    check(library.sluice_plan_create(1, ctypes.byref(plan)))
    for add in (library.sluice_plan_add_send, library.sluice_plan_add_recv):
        check(add(plan, ctypes.c_uint64(0), 0, ctypes.c_uint8(U8), 0, ctypes.byref(whole)))
    check(library.sluice_plan_bind(plan, 0, SOURCE, source, bytes_))
    check(library.sluice_plan_bind(plan, 0, DESTINATION, destination, bytes_))
    check(library.sluice_plan_seal_wait(plan, runtime, None, ctypes.c_uint64(0)))
    check(library.sluice_submit(plan, None, ctypes.byref(transfer)))
    check(library.sluice_transfer_wait(transfer, FOREVER))
    assert destination.value == content
    library.sluice_transfer_destroy(transfer)
    library.sluice_plan_destroy(plan)
    library.sluice_runtime_close_wait(runtime)


for _ in range(50):
    library = ctypes.CDLL(sys.argv[1])
    library.sluice_status_name.restype = ctypes.c_char_p
    assert library.sluice_status_name(-20) == b"SLUICE_TIMEOUT"
    assert library.sluice_abi_version() == 1
    refit(library)
    handle = library._handle
    del library
    _ctypes.dlclose(handle)
