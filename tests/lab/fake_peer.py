"""What a shim may find where its peer's should be.

usage: fake_peer.py version|dies|silent IP PORT     listens
       fake_peer.py attacks IP PORT FROM            connects, from the address FROM, to every port at IP where somebody listens

Prints `ready` once it is there, and `met` when the shim has come.
"""

import os
import random
import socket
import struct
import sys
import time

HELLO = 1  # kind of the first message, whose head all versions share
OTHER_VERSION = 2


def say(word):
    print(word, flush=True)


def listen(mode, ip, port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((ip, port))
    server.listen()
    say("ready")
    kept = []
    while True:
        link, _ = server.accept()
        said = link.recv(4096)
        if not said:
            continue
        say("met")
        if mode == "dies":
            os._exit(0)
        if mode == "version":
            body = b"TLRD" + struct.pack("<H", OTHER_VERSION) + bytes(100)
            link.sendall(struct.pack("<HB", len(body), HELLO) + body)
        kept.append(link)


def listened(ip):
    """The TCP ports at which somebody listens at this IPv4 address."""
    address = "%08X" % struct.unpack("<I", socket.inet_aton(ip))
    with open("/proc/net/tcp") as table:
        lines = [line.split() for line in table.readlines()[1:]]
    return [int(at[9:], 16) for _, at, _, state, *_ in lines if at[:8] == address and state == "0A"]


def attack(ip, first, source):
    """Of eight connections, four send random bytes of all lengths at once, the others stay open and silent."""
    dice = random.Random(1)
    say("ready")
    met, silent = False, []
    while True:
        ports = [port for port in listened(ip) if port >= first]
        for port in ports:
            for turn in range(8):
                link = socket.socket()
                link.settimeout(1)
                try:
                    link.bind((source, 0))
                    link.connect((ip, port))
                    if turn % 2:
                        silent = silent[-30:] + [link]
                    else:
                        link.sendall(dice.randbytes(dice.randrange(5000)))
                        link.close()
                except OSError:
                    continue
                if not met:
                    say("met")
                met = True
        # The client may live no longer than a quarter of a second.
        time.sleep(0.01 if not met else 0.2)


if sys.argv[1] == "attacks":
    attack(sys.argv[2], int(sys.argv[3]), sys.argv[4])
else:
    listen(sys.argv[1], sys.argv[2], int(sys.argv[3]))
