"""with_parent.py: for scripts that start programs which nobody would end after a script that was killed."""
import ctypes
import signal

PR_SET_PDEATHSIG = 1


def die_with_parent():
    """In a child, ahead of exec or of its work: the kernel kills it when its parent has gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
