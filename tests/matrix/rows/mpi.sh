# shellcheck shell=bash
# Two ranks, one on each device, over UCX; the payload is what the program says that both sent.

payload() { awk '$1 == "payload" { print $2 }' "$ran/client.txt"; }
known="the payload, a lower bound: UCX and MPI add messages of their own; the network port's bytes, an upper one"

openmpi="mpirun.openmpi --allow-run-as-root --mca pml ucx --mca osc ucx --mca btl self --oversubscribe"
row "mpi_exchange (Open MPI)" "linked (UCX rc_v)" "$known" "" \
    "$openmpi -np 1 env $ucx UCX_NET_DEVICES=rxeA:1 $programs/mpi_exchange.openmpi : -np 1 env $ucx UCX_NET_DEVICES=rxeB:1 $programs/mpi_exchange.openmpi" \
    AB.sent\>=@payload AB.wire\>=AB.sent

row "mpi_exchange (MPICH)" "linked (UCX rc_v)" "$known" "" \
    "mpirun.mpich -np 1 env $ucx UCX_NET_DEVICES=rxeA:1 $programs/mpi_exchange.mpich : -np 1 env $ucx UCX_NET_DEVICES=rxeB:1 $programs/mpi_exchange.mpich" \
    AB.sent\>=@payload AB.wire\>=AB.sent
unset known
