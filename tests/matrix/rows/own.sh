# shellcheck shell=bash
# The matrix's own programs: ways to reach verbs that no packaged example has alone. Each checks the data that arrived.

programs=$PWD/target/matrix/programs

row "dlvsym (as NCCL)" "dlopen, dlvsym" "n × size" "" "$programs/dlvsym" \
    A.RDMA_WRITE=819200 A.RDMA_WRITE_WITH_IMM.wrs=50 A.sent=819200 A.wrs=100 B.recvs=50

row "extended" "linked, ibv_wr_*, cq_ex" "n × size: a WRITE, a SEND and a READ each" "" "$programs/extended" \
    A.RDMA_WRITE=204800 A.SEND_WITH_IMM=204800 A.RDMA_READ=204800 A.wrs=150 A.sent=614400 B.got=204800 B.recvs=50

row "rpma" "librpma, rdma_cm" "n × size: a WRITE and a READ each" "$programs/rpma server 10.2.0.1" \
    "$programs/rpma client 10.2.0.1" A.RDMA_WRITE=163840 A.RDMA_READ=163840 A.wrs=40 B.wrs=0

row "exchange.py (pyverbs)" "Python, linked" "n × size: a WRITE and a SEND each" "" \
    "/usr/bin/python3 $PWD/tests/matrix/programs/exchange.py" \
    A.RDMA_WRITE=81920 A.SEND=81920 A.wrs=40 B.got=81920 B.recvs=20
