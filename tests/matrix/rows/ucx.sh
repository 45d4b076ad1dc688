# shellcheck shell=bash
# UCX over its verbs transports. Soft-RoCE leaves a completion's wc.sl at 0, from which UCX would read the IP version.

ucx="UCX_TLS=rc_v,ud_v,self UCX_UD_VERBS_ETH_DGID_CHECK=n"
for test in tag_bw:65536 ucp_put_bw:65536 ucp_am_lat:8 tag_lat:8; do
    size=${test#*:}
    row "ucx_perftest -t ${test%:*}" "linked (UCX rc_v)" "n × size, a lower bound: UCX adds messages of its own; the network port's bytes, an upper one" \
        "$ucx UCX_NET_DEVICES=rxeB:1 ucx_perftest" \
        "$ucx UCX_NET_DEVICES=rxeA:1 ucx_perftest 10.2.0.1 -t ${test%:*} -n 50 -s $size -w 0" \
        "AB.sent>=$((50 * size))" AB.wire\>=AB.sent
done
