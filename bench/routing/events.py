"""What workers say of their own caches, read from their publishers: blocks that had to be computed. And a link that loses a part of it."""

import queue
import struct
import threading

import msgpack
import zmq

TOPIC = b"kv-events"
PREFIX = "v1/event_channels/"


class Events:
    """Counts the blocks that workers store, from its start until it is stopped. Publishers that come later are followed too."""

    def __init__(self, etcd, components):
        self._etcd, self._components = etcd, components
        self.stored = 0
        self.by_worker = {}
        self.broken = 0
        self._known, self._new = set(), queue.SimpleQueue()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, 200)
        self._socket.setsockopt(zmq.SUBSCRIBE, TOPIC)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.follow()

    def follow(self):
        """Has publishers listened to that are registered and not known yet. The socket is its own thread's alone."""
        for key, record in self._etcd.values(PREFIX).items():
            endpoint = record["transport"].get("config", {}).get("endpoint")
            mine = any(f"/component/{component}/" in key for component in self._components)
            if record["topic"] != TOPIC.decode() or not mine or not endpoint:
                continue
            if endpoint not in self._known:
                self._known.add(endpoint)
                self._new.put(endpoint)

    @property
    def publishers(self):
        return len(self._known)

    def stop(self):
        self._stop.set()
        self._thread.join(5)
        self._socket.close(0)
        self._context.term()
        return self.stored

    def _run(self):
        while not self._stop.is_set():
            while not self._new.empty():
                self._socket.connect(self._new.get())
            try:
                frames = self._socket.recv_multipart()
            except zmq.Again:
                continue
            try:
                self._take(frames)
            except (ValueError, KeyError, TypeError, struct.error, IndexError):
                self.broken += 1

    def _take(self, frames):
        length = struct.unpack(">I", frames[3][1:5])[0]
        envelope = msgpack.unpackb(frames[3][5:5 + length])
        for event in msgpack.unpackb(envelope["payload"], strict_map_key=False):
            data = event["event"]["data"]
            if isinstance(data, dict) and "stored" in data and event.get("storage_tier", "device") == "device":
                blocks = len(data["stored"]["blocks"])
                self.stored += blocks
                self.by_worker[event["worker_id"]] = self.by_worker.get(event["worker_id"], 0) + blocks


class LossyLink:
    """Stands between the publishers of block events and whoever subscribes from now on: while it is `losing`, it drops every fourth
    message of each publisher. The registered addresses are moved to it, so routers find it as they find workers."""

    EVERY = 4

    def __init__(self, etcd, components):
        self.losing = threading.Event()
        self.lost = 0
        self._context = zmq.Context()
        self._stop = threading.Event()
        self._threads = []
        for key, record in etcd.values(PREFIX).items():
            config = record["transport"].get("config", {})
            if record["topic"] == TOPIC.decode() and any(f"/component/{component}/" in key for component in components):
                config["endpoint"] = self._relay(config["endpoint"])
                etcd.replace(key, record)

    def _relay(self, origin):
        """Starts a relay of one publisher; its address."""
        source, sink = self._context.socket(zmq.SUB), self._context.socket(zmq.PUB)
        source.setsockopt(zmq.RCVTIMEO, 200)
        source.setsockopt(zmq.SUBSCRIBE, b"")
        source.connect(origin)
        port = sink.bind_to_random_port("tcp://127.0.0.1")
        self._threads.append(threading.Thread(target=self._forward, args=(source, sink), daemon=True))
        self._threads[-1].start()
        return f"tcp://127.0.0.1:{port}"

    def _forward(self, source, sink):
        heard = 0
        while not self._stop.is_set():
            try:
                frames = source.recv_multipart()
            except zmq.Again:
                continue
            heard += 1
            if self.losing.is_set() and heard % self.EVERY == 0:
                self.lost += 1
            else:
                sink.send_multipart(frames)
        source.close(0)
        sink.close(0)

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(5)
        self._context.term()
