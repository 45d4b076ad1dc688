"""What the ranks' final counters say: which WRs have NCCL's label, and whether both ends of each connection agree.

usage: labels.py RANKS DIR
Fails if a WR of a data connection has no label, a QP had two, or a sender's count is not its receiver's.
"""

import json
import sys


def main():
    ranks, directory = int(sys.argv[1]), sys.argv[2]
    labelled = unlabelled = changes = qps = 0
    # By communicator, sender, receiver and channel: what each side posted. A message is one WR there and one here, which says
    # where the next one may go.
    posted = {}
    for rank in range(ranks):
        with open(f"{directory}/rank{rank}.json") as f:
            segment = json.load(f)["segments"][0]
        for q in segment["qps"]:
            if q["wr_posted"] == 0:
                continue
            qps += 1
            n = q["nccl"]
            known = n["wr_labelled"] if n else 0
            labelled += known
            unlabelled += q["wr_posted"] - known
            if n:
                changes += n["changes"]
                pair = (n["rank"], n["peer_rank"]) if n["direction"] == "send" else (n["peer_rank"], n["rank"])
                sides = posted.setdefault((n["group"], *pair, n["channel"]), {"send": 0, "recv": 0})
                sides[n["direction"]] += q["wr_posted"]
    unequal = [f"{key}: {sides}" for key, sides in posted.items() if sides["send"] != sides["recv"]]
    print(f"{qps} QPs, {labelled} WRs with a label, {unlabelled} without, {changes} changes of a QP's label")
    print(f"{len(posted)} connections, {len(unequal)} whose ends differ", *unequal, sep="\n")
    return 1 if unlabelled or changes or unequal or not posted else 0


if __name__ == "__main__":
    sys.exit(main())
