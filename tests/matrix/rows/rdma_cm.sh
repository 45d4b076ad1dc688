# shellcheck shell=bash
# librdmacm's own examples.

# Every ping: the client sends two messages of 16 bytes (where its buffer is), the server READs the ping, sends 16, WRITEs
# the pong and sends 16.
row "rping -C 20 -S 1000 -V" "rdma_cm" "per ping: 2 SENDs of 16 bytes each way, a READ and a WRITE of the size" \
    "rping -s -a 10.2.0.1 -C 20 -S 1000 -V" "rping -c -a 10.2.0.1 -I 10.1.0.1 -C 20 -S 1000 -V" \
    A.SEND=640 A.got=640 B.SEND=640 B.got=640 B.RDMA_READ=20000 B.RDMA_WRITE=20000 A.wrs=40 B.wrs=80

# The client destroys its queue pair without a look at its sends' completions: posted, then dropped.
row "ucmatose -C 20 -S 1000 -c 4" "rdma_cm" "connections × n × size, both ways" \
    "ucmatose -b 10.2.0.1 -C 20 -S 1000 -c 4" "ucmatose -s 10.2.0.1 -b 10.1.0.1 -C 20 -S 1000 -c 4" \
    A.posted=80000 B.got=80000 B.sent=80000 A.got=80000 A.recvs=80 B.recvs=80

row "udaddy -C 20 -S 1000 -c 4" "rdma_cm, UD" "connections × n × size, both ways" \
    "udaddy -b 10.2.0.1 -C 20 -S 1000 -c 4" "udaddy -s 10.2.0.1 -b 10.1.0.1 -C 20 -S 1000 -c 4" \
    A.posted=80000 B.got=83200 B.sent=80000 A.got=83200 A.recvs=80 B.recvs=80

row "riostream -C 20 -S 4096" "rdma_cm, rsockets" "n × size, both ways, a lower bound: the stream adds messages of its own; the network port's bytes, an upper one" \
    "riostream -b 10.2.0.1 -C 20 -S 4096" "riostream -s 10.2.0.1 -b 10.1.0.1 -C 20 -S 4096" \
    A.sent\>=81920 B.sent\>=81920 AB.wire\>=AB.sent

row "rstream -C 20 -S 4096 -T v" "rdma_cm, rsockets" "n × size, both ways, a lower bound: the stream adds messages of its own; the network port's bytes, an upper one" \
    "rstream -b 10.2.0.1 -C 20 -S 4096 -T v" "rstream -s 10.2.0.1 -b 10.1.0.1 -C 20 -S 4096 -T v" \
    A.sent\>=81920 B.sent\>=81920 AB.wire\>=AB.sent

head -c 1000000 /dev/urandom >/run/rcopy.from
row "rcopy" "rdma_cm, rsockets" "the file's size, a lower bound: the stream adds messages of its own; the network port's bytes, an upper one" \
    "rcopy" "rcopy /run/rcopy.from 10.2.0.1:/run/rcopy.to && cmp /run/rcopy.from /run/rcopy.to && rm /run/rcopy.to" \
    A.sent\>=1000000 AB.wire\>=AB.sent
