#!/usr/bin/python3
"""pyverbs: WRITEs MESSAGES of SIZE bytes from rxeA to rxeB, SENDs each too, and compares what arrived."""

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

MESSAGES = 20
SIZE = 4096
GID_INDEX = 1  # the first IPv4 alias of a laboratory device
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


class Side:
    """One device with one QP."""

    def __init__(self, device):
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.mr = MR(self.pd, 2 * SIZE, ACCESS)
        self.cq = CQ(self.context, 64)
        cap = QPCap(max_send_wr=16, max_recv_wr=16)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))
        self.gid = self.context.query_gid(1, GID_INDEX)

    def connect(self, peer):
        """Takes the QP to RTS."""
        route = GlobalRoute(dgid=peer.gid, sgid_index=GID_INDEX)
        address = AHAttr(gr=route, is_global=1, port_num=1)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = peer.qp.qp_num
        attr.path_mtu = e.IBV_MTU_4096
        attr.ah_attr = address
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
        attr.min_rnr_timer = 12
        attr.timeout = 16
        attr.retry_cnt = attr.rnr_retry = 7
        self.qp.to_rts(attr)

    def completion(self):
        """Waits for one, which must be a success."""
        while True:
            count, completions = self.cq.poll(1)
            if count:
                assert completions[0].status == e.IBV_WC_SUCCESS, completions[0]
                return completions[0]

    def close(self):
        """In the order that libibverbs wants."""
        for thing in (self.qp, self.cq, self.mr, self.pd, self.context):
            thing.close()


def main():
    """Posts one message after the other."""
    a, b = Side("rxeA"), Side("rxeB")
    a.connect(b)
    b.connect(a)
    for m in range(MESSAGES):
        data = bytes((m * 31 + i * 7) % 256 for i in range(SIZE))
        a.mr.write(data, SIZE)
        b.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(b.mr.buf + SIZE, SIZE, b.mr.lkey)]))
        write = SendWR(num_sge=1, sg=[SGE(a.mr.buf, SIZE, a.mr.lkey)], opcode=e.IBV_WR_RDMA_WRITE)
        write.set_wr_rdma(b.mr.rkey, b.mr.buf)
        a.qp.post_send(write)
        a.completion()
        a.qp.post_send(SendWR(num_sge=1, sg=[SGE(a.mr.buf, SIZE, a.mr.lkey)], opcode=e.IBV_WR_SEND))
        a.completion()
        assert b.completion().byte_len == SIZE
        assert b.mr.read(2 * SIZE, 0) == data + data
    a.close()
    b.close()


if __name__ == "__main__":
    main()
