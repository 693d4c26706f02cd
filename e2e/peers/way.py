"""A way to a server on this machine that a test can cut and mend, for one of its clients alone."""

import contextlib
import socket
import threading

from .process import free_port

READ_BYTES = 64 * 1024


class Way:
    def __init__(self, target):
        """`target` is the server's port."""
        self.target = target
        self.port = free_port()
        self._ends = []
        self.mend()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def mend(self):
        """Lets connections through again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def cut(self):
        """Ends every connection, and refuses new ones."""
        _end(self._listener)
        self._listener.close()
        for end in self._ends:
            _end(end)
        self._ends.clear()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=[source, sink], daemon=True).start()


def _copy(source, sink):
    with contextlib.suppress(OSError):
        while read := source.recv(READ_BYTES):
            sink.sendall(read)
    _end(sink)


def _end(found):
    with contextlib.suppress(OSError):
        found.shutdown(socket.SHUT_RDWR)
