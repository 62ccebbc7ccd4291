"""Calls the InfiniBand transport inside NCCL as NCCL does, without a GPU: it listens, connects,
registers host memory, sends and receives, and compares every byte.

    nccl.py LIBNCCL [PROCESSES] [SIZE...]

The transport is a table of functions that the library does not export; its symbol table names it.
"""
import ctypes as c
import mmap
import os
import random
import socket
import struct
import sys
import time

HOST = 1  # NCCL_PTR_HOST
HANDLE = 128  # NCCL_NET_HANDLE_MAXSIZE
PATIENCE = 60
P, SZ, INT = c.c_void_p, c.c_size_t, c.c_int
OUT = c.POINTER(P)

# The table's functions in their order, with their arguments: as of ncclNet_v8 (2.20), and where
# ncclNet_v12 (2.32) has others. What follows them is not called.
FUNCTIONS = [
    ("init", [P], [OUT, c.c_uint64, P, P, P]),
    ("devices", [c.POINTER(INT)], None),
    ("get_properties", [INT, P], None),
    ("listen", [INT, P, OUT], [P, INT, P, OUT]),
    ("connect", [INT, P, OUT, OUT], [P, INT, P, OUT, OUT]),
    ("accept", [P, OUT, OUT], None),
    ("reg_mr", [P, P, SZ, INT, OUT], None),
    ("reg_mr_dma_buf", None, None),
    ("dereg_mr", [P, P], None),
    ("isend", [P, P, INT, INT, P, OUT], [P, P, SZ, INT, P, P, OUT]),
    ("irecv", [P, INT, OUT, c.POINTER(INT), c.POINTER(INT), OUT, OUT],
     [P, INT, OUT, c.POINTER(SZ), c.POINTER(INT), OUT, OUT, OUT]),
    ("iflush", [P, INT, OUT, c.POINTER(INT), OUT, OUT], None),
    ("test", [P, c.POINTER(INT), c.POINTER(INT)], None),
    ("close_send", [P], None),
    ("close_recv", [P], None),
    ("close_listen", [P], None),
]


def symbols(path, names):
    """Values of symbols of an ELF file for 64 bits."""
    with open(path, "rb") as file:
        image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    at, = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, at + i * size) for i in range(count)]
    table = next((section for section in sections if section[1] == 2), None)
    if table is None:
        sys.exit(f"{path} has no symbol table")
    start = sections[table[6]][4]
    found = {}
    for offset in range(table[4], table[4] + table[5], 24):
        name, value = struct.unpack_from("<I4xQ", image, offset)
        name = image[start + name:image.find(b"\0", start + name)].decode()
        if name in names:
            found[name] = value
    return found


def check(result, what):
    if result != 0:
        raise SystemExit(f"{what}: result {result}")


class Net:
    def __init__(self, path):
        library = c.CDLL(path)
        version = INT()
        check(library.ncclGetVersion(c.byref(version)), "version")
        self.version = version.value
        self.is_new = self.version >= 23200
        known = symbols(path, {"ncclNetIb", "ncclGetVersion"})
        base = c.cast(library.ncclGetVersion, P).value - known["ncclGetVersion"]
        table = (P * (1 + len(FUNCTIONS))).from_address(base + known["ncclNetIb"])
        self.name = c.cast(table[0], c.c_char_p).value.decode()
        for (name, old, new), address in zip(FUNCTIONS, table[1:]):
            arguments = new if self.is_new and new else old
            if arguments:
                setattr(self, name, c.CFUNCTYPE(INT, *arguments)(address))
        self.context = P()
        # It calls its logger; one of its own would need the rest of NCCL to be set up.
        self.logger = c.CFUNCTYPE(None, INT, c.c_ulong, c.c_char_p, INT, c.c_char_p)(log)
        logger = c.cast(self.logger, P)
        if self.is_new:
            self.config = INT(-1)
            config = c.cast(c.byref(self.config), P)
            check(self.init(c.byref(self.context), 1, config, logger, None), "init")
        else:
            check(self.init(logger), "init")
        count = INT()
        check(self.devices(c.byref(count)), "devices")
        if count.value < 1:
            sys.exit("it found no device")
        # Long enough for whatever version.
        properties = c.create_string_buffer(4096)
        check(self.get_properties(0, properties), "properties")
        self.device, = struct.unpack_from("<Q", properties.raw)
        self.device = c.cast(self.device, c.c_char_p).value.decode()

    def first(self):
        return [self.context] if self.is_new else []


def log(_level, _flags, _file, _line, text):
    if os.environ.get("NCCL_DEBUG"):
        print(text.decode(errors="replace"), file=sys.stderr)


def poll(step):
    """Calls until something comes of it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = step()
        if value:
            return value
    sys.exit("it waited in vain")


class Listener:
    def __init__(self, net):
        self.net, self.comm = net, P()
        self.handle = c.create_string_buffer(HANDLE)
        check(net.listen(*net.first(), 0, self.handle, c.byref(self.comm)), "listen")

    def try_accept(self):
        comm, device = P(), P()
        check(self.net.accept(self.comm, c.byref(comm), c.byref(device)), "accept")
        return comm.value

    def close(self):
        check(self.net.close_listen(self.comm), "close")


class Connector:
    """It is asked again with the same handle, in which it keeps its state."""

    def __init__(self, net, handle):
        self.net, self.handle = net, c.create_string_buffer(handle, HANDLE)

    def try_connect(self):
        comm, device = P(), P()
        net = self.net
        check(net.connect(*net.first(), 0, self.handle, c.byref(comm), c.byref(device)), "connect")
        return comm.value


class Memory:
    def __init__(self, net, comm, size):
        self.net, self.comm, self.size = net, comm, size
        self.map = mmap.mmap(-1, max(size, 1))
        self.address = c.addressof(c.c_char.from_buffer(self.map))
        self.key = P()
        check(net.reg_mr(comm, self.address, max(size, 1), HOST, c.byref(self.key)), "register")

    def close(self):
        check(self.net.dereg_mr(self.comm, self.key), "deregister")


class Sending:
    """One message; it may have to be offered more than once."""

    def __init__(self, net, comm, data, tag):
        self.net, self.comm, self.tag, self.request = net, comm, tag, P()
        self.memory = Memory(net, comm, len(data))
        self.memory.map[:len(data)] = data

    def step(self):
        net, memory = self.net, self.memory
        if not self.request:
            more = [None] if net.is_new else []
            check(net.isend(self.comm, memory.address, memory.size, self.tag, memory.key, *more,
                            c.byref(self.request)), "send")
            return False
        done, size = INT(), INT()
        check(net.test(self.request, c.byref(done), c.byref(size)), "test")
        if done.value and size.value != memory.size:
            sys.exit(f"{memory.size} bytes were sent as {size.value}")
        return done.value


class Receiving:
    """One message or several at once, told apart by their tags."""

    def __init__(self, net, comm, messages):
        self.net, self.comm, self.request, self.messages = net, comm, P(), messages
        self.memories = [Memory(net, comm, len(data)) for _, data in messages]
        self.flushing = None

    def array(self, kind, values):
        return (kind * len(self.memories))(*values)

    def lists(self):
        addresses = self.array(P, [memory.address for memory in self.memories])
        keys = self.array(P, [memory.key.value for memory in self.memories])
        return addresses, keys

    def step(self):
        net, count = self.net, len(self.memories)
        addresses, keys = self.lists()
        if self.flushing is not None:
            done = INT()
            check(net.test(self.flushing, c.byref(done), None), "flush")
            return done.value
        if not self.request:
            sizes = self.array(SZ if net.is_new else INT, [memory.size for memory in self.memories])
            tags = self.array(INT, [tag for tag, _ in self.messages])
            more = [self.array(P, [None] * count)] if net.is_new else []
            check(net.irecv(self.comm, count, addresses, sizes, tags, keys, *more,
                            c.byref(self.request)), "receive")
            return False
        done, sizes = INT(), self.array(INT, [0] * count)
        check(net.test(self.request, c.byref(done), sizes), "test")
        if not done.value:
            return False
        for size, memory, (tag, data) in zip(sizes, self.memories, self.messages):
            if size != len(data) or memory.map[:size] != data:
                sys.exit(f"message {tag} of {len(data)} bytes did not arrive as it was")
        self.flushing = P()
        check(net.iflush(self.comm, count, addresses, sizes, keys, c.byref(self.flushing)), "flush")
        return not self.flushing


def messages(sizes):
    """Groups of messages, each with its tag and its bytes. Both ends make the same."""
    bits = random.Random(1)
    tag = iter(range(1, 1 << 20))
    message = lambda size: (next(tag), bits.randbytes(size))
    groups = [[message(size)] for size in sizes]
    groups += [[message(size) for _ in range(8)] for size in sizes if size <= 1 << 20]
    # More than the transport holds in flight.
    return groups + [[message(8192)] for _ in range(100)]


def jobs(net, sizes, send, receive):
    """What is to be done here for each group: received in one request, sent in one for each."""
    for group in messages(sizes):
        sending = [Sending(net, send, data, tag) for tag, data in group] if send else []
        receiving = [Receiving(net, receive, group)] if receive else []
        yield receiving + sending


def transfer(net, sizes, send=None, receive=None):
    """Several groups are under way at once; a group begins when those before it have, as at the
    other end. How many messages this end sent and received."""
    upcoming, window, count = jobs(net, sizes, send, receive), [], 0
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        have_begun = all(step.request for group in window for step in group)
        if have_begun and len(window) < 4 and (group := next(upcoming, None)):
            count += len(group)
            window.append(group)
        elif not window:
            return count
        window = [left for group in window if (left := [step for step in group if not finish(step)])]
    sys.exit("messages did not arrive in time")


def finish(step):
    if not step.step():
        return False
    for memory in getattr(step, "memories", None) or [step.memory]:
        memory.close()
    return True


def alone(path, sizes):
    net = Net(path)
    listener = Listener(net)
    connector = Connector(net, listener.handle.raw)
    ends = {}

    def both():
        for name, step in (("send", connector.try_connect), ("receive", listener.try_accept)):
            if name not in ends and (comm := step()):
                ends[name] = comm
        return len(ends) == 2

    poll(both)
    count = transfer(net, sizes, ends["send"], ends["receive"])
    check(net.close_send(ends["send"]), "close")
    check(net.close_recv(ends["receive"]), "close")
    listener.close()
    return net, count


def pair(path, sizes):
    """A process sends to its child. It forks before anything is loaded."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        net = Net(path)
        listener = Listener(net)
        theirs.sendall(listener.handle.raw)
        comm = poll(listener.try_accept)
        transfer(net, sizes, receive=comm)
        theirs.sendall(b"!")
        check(net.close_recv(comm), "close")
        listener.close()
        sys.stdout.flush()
        os._exit(0)
    theirs.close()
    net = Net(path)
    handle = ours.recv(HANDLE, socket.MSG_WAITALL)
    comm = poll(Connector(net, handle).try_connect)
    count = transfer(net, sizes, send=comm)
    # Who closes first would take what the other end has not seen yet.
    if ours.recv(1) != b"!":
        sys.exit("the receiver failed")
    check(net.close_send(comm), "close")
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the receiver failed")
    return net, count


def main():
    path, processes, *sizes = sys.argv[1:]
    sizes = [int(size) for size in sizes]
    net, count = (alone if processes == "1" else pair)(path, sizes)
    print(f"NCCL {net.version}: {net.name} on {net.device}, {count} messages as they were")


main()
