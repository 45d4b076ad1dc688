//! Sockets of the side channel, by the kernel's own calls.
//!
//! - System calls are made directly: other preloaded libraries replace `socket` and its like (librspreload turns them into
//!   RDMA), and the side channel must not run over what it serves.
//! - Every descriptor is checked before it is used or closed: programs close what they did not open, and may have made
//!   something else of the number.
//! - Descriptors stand in a [`Registry`], so that a forked child can close its copies without a lock, and without a word to
//!   the peers.

use core::mem::{size_of, zeroed};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// A system call; `Err` with errno.
macro_rules! call {
    ($number:ident $(, $arg:expr)*) => {
        match libc::syscall(libc::$number $(, $arg as libc::c_long)*) {
            -1 => Err(io::Error::last_os_error()),
            n => Ok(n),
        }
    };
}

const FREE: i32 = -1;
const TAKEN: i32 = -2;

struct Slot {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

/// Every descriptor of one side channel.
pub struct Registry {
    slots: Box<[Slot]>,
    /// The process that made it, 0 in a child that has closed its copies.
    owner: AtomicI32,
}

impl Registry {
    /// Room for so many descriptors.
    pub fn new(capacity: usize) -> Arc<Registry> {
        let slot = |_| Slot { fd: AtomicI32::new(FREE), device: AtomicU64::new(0), inode: AtomicU64::new(0) };
        Arc::new(Registry { slots: (0..capacity).map(slot).collect(), owner: AtomicI32::new(process()) })
    }

    /// Whether this is the process that made it, not a forked child.
    pub fn is_owner(&self) -> bool {
        self.owner.load(Relaxed) == process()
    }

    /// In a forked child: closes its copies of all descriptors. The connections stay the parent's. Takes no lock and
    /// allocates nothing.
    pub fn close_in_child(&self) {
        if self.is_owner() {
            return;
        }
        self.owner.store(0, Relaxed);
        for slot in &self.slots {
            // SYNC POINT: the identity was stored before the descriptor.
            let fd = slot.fd.load(Acquire);
            if fd >= 0 && identity(fd) == Some((slot.device.load(Relaxed), slot.inode.load(Relaxed))) {
                // SAFETY: a descriptor that is used no more in this process.
                let _ = unsafe { call!(SYS_close, fd) };
            }
        }
    }

    /// Whether it holds this descriptor.
    #[cfg(test)]
    pub fn holds(&self, fd: RawFd) -> bool {
        self.slots.iter().any(|s| s.fd.load(Relaxed) == fd)
    }

    /// How many descriptors it holds.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.slots.iter().filter(|s| s.fd.load(Relaxed) != FREE).count()
    }
}

fn process() -> i32 {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

/// Device and number of an open file.
fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: an all-zero stat is a valid value; fstat writes only that.
    unsafe {
        let mut s: libc::stat = zeroed();
        (libc::fstat(fd, &mut s) == 0).then_some((s.st_dev, s.st_ino))
    }
}

/// A socket; never blocks, not inherited by programs that are executed, and never a standard stream's number.
pub struct Socket {
    fd: RawFd,
    identity: (u64, u64),
    slot: usize,
    registry: Arc<Registry>,
}

impl Socket {
    fn adopt(registry: &Arc<Registry>, fd: RawFd) -> io::Result<Socket> {
        // SAFETY: descriptor numbers only; `fd` is owned by nobody else.
        let close = |fd| _ = unsafe { call!(SYS_close, fd) };
        let fd = if fd > 2 {
            fd
        } else {
            // SAFETY: as above.
            let above = unsafe { call!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 3) };
            close(fd);
            above? as RawFd
        };
        let found = identity(fd).ok_or_else(io::Error::last_os_error);
        let slot = registry
            .slots
            .iter()
            .position(|s| s.fd.load(Relaxed) == FREE && s.fd.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok());
        let (Ok(identity), Some(slot)) = (found, slot) else {
            close(fd);
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        let s = &registry.slots[slot];
        s.device.store(identity.0, Relaxed);
        s.inode.store(identity.1, Relaxed);
        // SYNC POINT: a forked child's copy of memory has the identity, if it has the descriptor.
        s.fd.store(fd, Release);
        Ok(Socket { fd, identity, slot, registry: registry.clone() })
    }

    /// A TCP socket of the address's family.
    ///
    /// # Errors
    /// As socket says; EMFILE if the registry is full.
    pub fn tcp(registry: &Arc<Registry>, ip: IpAddr) -> io::Result<Socket> {
        let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: numbers only.
        let fd = unsafe { call!(SYS_socket, family, kind, 0) }?;
        Socket::adopt(registry, fd as RawFd)
    }

    /// Two sockets connected to each other: what one sends, wakes who polls the other.
    ///
    /// # Errors
    /// As socketpair says.
    pub fn pair(registry: &Arc<Registry>) -> io::Result<(Socket, Socket)> {
        let mut fds = [0 as RawFd; 2];
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: writes two descriptors.
        unsafe { call!(SYS_socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }?;
        let (a, b) = (Socket::adopt(registry, fds[0]), Socket::adopt(registry, fds[1]));
        Ok((a?, b?))
    }

    /// Whether the number still is this socket's, in this process.
    pub fn is_ours(&self) -> bool {
        self.registry.is_owner() && identity(self.fd) == Some(self.identity)
    }

    /// Descriptor, to be polled.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    fn checked(&self) -> io::Result<RawFd> {
        if self.is_ours() { Ok(self.fd) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        let fd = self.checked()?;
        // SAFETY: reads one integer.
        unsafe { call!(SYS_setsockopt, fd, level, option, &raw const value, size_of::<i32>()) }.map(drop)
    }

    /// Listens at the address. `shared`: together with all sockets there of this user.
    ///
    /// # Errors
    /// As bind and listen say: EADDRINUSE if the port is another's.
    pub fn listen(&self, at: SocketAddr, shared: bool) -> io::Result<()> {
        if shared {
            self.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            self.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        self.bind(at)?;
        let fd = self.checked()?;
        // SAFETY: numbers only.
        unsafe { call!(SYS_listen, fd, 256) }.map(drop)
    }

    fn bind(&self, at: SocketAddr) -> io::Result<()> {
        let (fd, (address, bytes)) = (self.checked()?, raw(at));
        // SAFETY: reads the address.
        unsafe { call!(SYS_bind, fd, &raw const address, bytes) }.map(drop)
    }

    /// Starts to connect from an address: writable, or in error, when that is done.
    ///
    /// # Errors
    /// As bind and connect say.
    pub fn connect(&self, from: IpAddr, to: SocketAddr) -> io::Result<()> {
        // The port is chosen by connect, which knows that other connections of that port go elsewhere.
        let _ = self.set(libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        self.bind(SocketAddr::new(from, 0))?;
        self.tune();
        let (fd, (address, bytes)) = (self.checked()?, raw(to));
        // SAFETY: reads the address.
        match unsafe { call!(SYS_connect, fd, &raw const address, bytes) } {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) && e.kind() != ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }

    /// Small messages go at once; a host that is gone is noticed after some seconds.
    fn tune(&self) {
        let tcp = [
            (libc::TCP_NODELAY, 1),
            (libc::TCP_KEEPIDLE, 5),
            (libc::TCP_KEEPINTVL, 1),
            (libc::TCP_KEEPCNT, 3),
            (libc::TCP_USER_TIMEOUT, 8000),
        ];
        tcp.iter().for_each(|(option, value)| _ = self.set(libc::IPPROTO_TCP, *option, *value));
        let _ = self.set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    }

    /// The next connection made to this listening socket, and where it comes from.
    ///
    /// # Errors
    /// As accept says; EAGAIN if there is none.
    pub fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        let fd = self.checked()?;
        // SAFETY: an all-zero sockaddr_storage is a valid value; accept4 writes no more than that.
        let (fd, address) = unsafe {
            let mut address: libc::sockaddr_storage = zeroed();
            let mut bytes = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            (call!(SYS_accept4, fd, &raw mut address, &raw mut bytes, flags)?, address)
        };
        let socket = Socket::adopt(&self.registry, fd as RawFd)?;
        socket.tune();
        Ok((socket, cooked(&address).ok_or(ErrorKind::AddrNotAvailable)?))
    }

    /// Its own address.
    ///
    /// # Errors
    /// As getsockname says.
    pub fn local(&self) -> io::Result<SocketAddr> {
        let fd = self.checked()?;
        // SAFETY: an all-zero sockaddr_storage is a valid value; getsockname writes no more than that.
        let address = unsafe {
            let mut address: libc::sockaddr_storage = zeroed();
            let mut bytes = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            call!(SYS_getsockname, fd, &raw mut address, &raw mut bytes)?;
            address
        };
        cooked(&address).ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// How connecting ended.
    ///
    /// # Errors
    /// As connect would have said.
    pub fn connected(&self) -> io::Result<()> {
        let fd = self.checked()?;
        let (mut error, mut bytes) = (0i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: writes one integer and its length.
        unsafe { call!(SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_ERROR, &raw mut error, &raw mut bytes) }?;
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    /// Sends some of the bytes; raises no signal.
    ///
    /// # Errors
    /// As sendto says; EAGAIN if there is no room.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let (fd, flags) = (self.checked()?, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        // SAFETY: reads the slice.
        unsafe { call!(SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, 0, 0) }.map(|n| n as usize)
    }

    /// Receives what is there; 0: the other end has closed.
    ///
    /// # Errors
    /// As recvfrom says; EAGAIN if there is nothing.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let fd = self.checked()?;
        // SAFETY: writes into the slice.
        unsafe { call!(SYS_recvfrom, fd, into.as_mut_ptr(), into.len(), libc::MSG_DONTWAIT, 0, 0) }.map(|n| n as usize)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_ours() {
            // A child may hold a copy, which must not keep the connection.
            // SAFETY: a descriptor that is ours and used no more.
            unsafe {
                let _ = call!(SYS_shutdown, self.fd, libc::SHUT_RDWR);
                let _ = call!(SYS_close, self.fd);
            }
        }
        self.registry.slots[self.slot].fd.store(FREE, Release);
    }
}

/// An address as the kernel wants it, and its length.
fn raw(at: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero socket addresses are valid values, and sockaddr_storage is large enough and aligned for both.
    unsafe {
        let mut storage: libc::sockaddr_storage = zeroed();
        let bytes = match at {
            SocketAddr::V4(v4) => {
                let a = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                a.sin_family = libc::AF_INET as libc::sa_family_t;
                a.sin_port = v4.port().to_be();
                a.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let a = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                a.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                a.sin6_port = v6.port().to_be();
                a.sin6_addr.s6_addr = v6.ip().octets();
                size_of::<libc::sockaddr_in6>()
            }
        };
        (storage, bytes as libc::socklen_t)
    }
}

/// An address that the kernel gave.
fn cooked(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the family says which of the two it is; sockaddr_storage is large enough and aligned for both.
    unsafe {
        match i32::from(storage.ss_family) {
            libc::AF_INET => {
                let a = &*(&raw const *storage).cast::<libc::sockaddr_in>();
                Some((a.sin_addr.s_addr.to_ne_bytes(), u16::from_be(a.sin_port)).into())
            }
            libc::AF_INET6 => {
                let a = &*(&raw const *storage).cast::<libc::sockaddr_in6>();
                Some((a.sin6_addr.s6_addr, u16::from_be(a.sin6_port)).into())
            }
            _ => None,
        }
    }
}

/// Waits until one of the descriptors is ready, or for `timeout`. Interruptions end it early.
pub fn poll(fds: &mut [libc::pollfd], timeout: Duration) {
    let mut time = libc::timespec {
        tv_sec: timeout.as_secs().min(3600) as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    fds.iter_mut().for_each(|f| f.revents = 0);
    // SAFETY: reads and writes the slice and the time.
    let polled = unsafe { call!(SYS_ppoll, fds.as_mut_ptr(), fds.len(), &raw mut time, 0, 8) };
    if polled.is_err_and(|e| e.kind() != ErrorKind::Interrupted) {
        // The program may have lowered its limit on descriptors. Whatever it is, do not spin.
        std::thread::sleep(timeout.min(Duration::from_millis(10)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn addresses_go_to_the_kernel_and_back() {
        for text in ["127.0.0.2:18516", "[2001:db8::5]:65535", "0.0.0.0:0"] {
            let at: SocketAddr = text.parse().unwrap();
            assert_eq!(cooked(&raw(at).0), Some(at));
        }
    }

    #[test]
    fn a_number_that_the_program_made_something_else_of_is_left_alone() {
        let registry = Registry::new(4);
        let (a, b) = Socket::pair(&registry).unwrap();
        assert_eq!((a.send(b"x").unwrap(), registry.held()), (1, 2));
        // The program closes what is not its own and opens a file, which gets the number.
        let file = tempfile::tempfile().unwrap();
        // SAFETY: both descriptors are open.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), a.fd()) }, a.fd());
        assert_eq!(a.send(b"x").unwrap_err().raw_os_error(), Some(libc::EBADF));
        let fd = a.fd();
        drop(a);
        assert_eq!(identity(fd), identity(file.as_raw_fd()), "still open");
        assert_eq!((file.metadata().unwrap().len(), registry.held()), (0, 1));
        // SAFETY: the copy made above.
        unsafe { libc::close(fd) };
        drop(b);
    }

    #[test]
    fn a_full_registry_is_an_error_and_leaks_nothing() {
        let registry = Registry::new(1);
        assert_eq!(Socket::pair(&registry).err().and_then(|e| e.raw_os_error()), Some(libc::EMFILE));
        assert_eq!(registry.held(), 0);
    }
}
