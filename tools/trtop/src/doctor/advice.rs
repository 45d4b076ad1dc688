//! What is wrong, and what to do, in words.

use super::process::Facts;
use telereduce::shm::snapshot::SegmentJson;

/// How a context's calls are reached.
pub fn of_way(hooked: &str) -> &'static str {
    match hooked {
        "linked" => "calls seen: the program is linked with libibverbs",
        "looked_up" => "calls seen: the program looks them up with dlsym or dlvsym",
        "provider" => "calls seen: opened by a provider's own call",
        _ => "calls NOT seen: only its opening was",
    }
}

/// What is not seen of a process that has a segment; empty = nothing.
pub fn of_segment(s: &SegmentJson, facts: &Facts) -> Vec<String> {
    let mut found = Vec::new();
    let m = &s.missed;
    if s.contexts.iter().any(|c| c.live && c.hooked == "unseen") {
        found.push(
            "a context's calls go past the library: look-ups are left alone (TELEREDUCE_DLSYM=off), bound deeply \
             (RTLD_DEEPBIND), or made by a library that has its own libibverbs linked in; unset TELEREDUCE_DLSYM, or preload \
             libibverbs.so.1 after libtelereduce.so"
                .into(),
        );
    }
    for (n, what) in [
        (m.wrs_unseen, "work requests on objects whose creation was not seen"),
        (
            m.objects_opaque,
            "QPs, CQs or bare queues that can be used without verbs (marked * in trtop, opaque in the JSON)",
        ),
        (m.completions_unmatched, "completions of work requests that were not seen posted"),
        (
            m.objects_untracked,
            "objects without a record: no memory left for the segment (see df /dev/shm), or very many address handles",
        ),
        (m.panics, "internal errors, after which nothing is counted; please report the line on the program's stderr"),
    ] {
        if n > 0 {
            found.push(format!("{n} {what}"));
        }
    }
    if uses_hardware_past_verbs(facts) && !found.is_empty() {
        found.push(UCX.into());
    }
    found
}

const UCX: &str = "UCX drives the hardware itself; to see it, start the program with UCX_TLS=rc_v,ud_v,self,sm";

fn uses_hardware_past_verbs(f: &Facts) -> bool {
    f.has("libuct_ib") && (f.has("libmlx5") || f.has("libuct_ib_mlx5"))
}

/// Why a process has no segment.
pub fn of_stranger(f: &Facts) -> String {
    let start = "start it with: trtop run -- COMMAND";
    if f.denied {
        return "another user's process: ask its user, or root, to run trtop doctor".into();
    }
    if f.has("libtelereduce.so") {
        return match f.setting.as_deref() {
            Some("off") => "the library is loaded and TELEREDUCE=off: unset it".into(),
            _ if f.uses_rdma => {
                "the library is loaded and has no segment: its first line on stderr says why (no room in \
                                 /dev/shm?); a forked child counts only devices that it opens itself"
                    .into()
            }
            _ => "the library is loaded; it waits for the first RDMA device to be opened".into(),
        };
    }
    if !f.libraries.iter().any(|l| l.starts_with("libc.so")) {
        return "statically linked: nothing can be preloaded into it".into();
    }
    if !f.uses_rdma && !f.has("libibverbs.so") {
        return format!("the library is not loaded, nor is libibverbs: it uses no RDMA; {start}");
    }
    format!("the library is not loaded, and it uses RDMA; {start} (setuid programs cannot be preloaded)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(libraries: &[&str]) -> Facts {
        Facts { libraries: libraries.iter().map(|l| (*l).to_string()).collect(), ..Facts::default() }
    }

    #[test]
    fn strangers_are_told_apart() {
        let off = Facts { setting: Some("off".into()), ..process(&["libc.so.6", "libtelereduce.so"]) };
        let rdma = Facts { uses_rdma: true, ..process(&["libc.so.6", "libibverbs.so.1"]) };
        for (facts, part) in [
            (off, "TELEREDUCE=off"),
            (rdma, "it uses RDMA; start it with"),
            (process(&["libc.so.6", "libtelereduce.so"]), "waits for the first"),
            (process(&["libc.so.6"]), "nor is libibverbs"),
            (process(&[]), "statically linked"),
            (Facts { denied: true, ..Facts::default() }, "another user's"),
        ] {
            assert!(of_stranger(&facts).contains(part), "{facts:?}: {}", of_stranger(&facts));
        }
    }
}
