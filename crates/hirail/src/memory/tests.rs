use super::*;

/// A region over bytes of its own, and those bytes by value.
struct Owned {
    words: Vec<u64>,
    len: usize,
}

impl Owned {
    fn new(len: usize) -> Self {
        Self {
            words: vec![0x5a5a_5a5a_5a5a_5a5a; len.div_ceil(8) + 1],
            len,
        }
    }

    fn region(&mut self) -> UserRegion {
        // SAFETY: the tests touch the words through the region, or after it is gone.
        unsafe { UserRegion::new(self.words.as_mut_ptr().cast(), self.len, true) }.expect("range")
    }

    fn bytes(&self) -> Vec<u8> {
        self.words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 7 + i / 251 + 1).to_le_bytes()[0])
        .collect()
}

/// Every length around the routine's block sizes, at every alignment: what was written is there,
/// and nothing beside it changed.
#[test]
fn copies_every_length_and_alignment() {
    let lengths: Vec<usize> = if cfg!(miri) {
        (0..40).collect()
    } else {
        (0..300).chain([1024, 4096, 4112]).collect()
    };
    for len in lengths {
        for offset in if cfg!(miri) { 0..3 } else { 0..17 } {
            let mut memory = Owned::new(len + 40);
            let payload = pattern(len);
            let region = memory.region();
            assert_eq!(region.write(offset, &payload), Ok(()));
            let mut back = vec![0; len];
            assert_eq!(region.read_into(offset, &mut back), Ok(()));
            assert_eq!(back, payload, "{len} at {offset}");
            let (start, bytes) = (offset as usize, memory.bytes());
            assert_eq!(bytes[start..start + len], payload, "{len} at {offset}");
            assert!(
                bytes[..start]
                    .iter()
                    .chain(&bytes[start + len..])
                    .all(|b| *b == 0x5a)
            );
        }
    }
}

#[test]
fn stays_within_the_range() {
    let mut memory = Owned::new(16);
    let region = memory.region();
    assert_eq!(region.write(9, &[0; 8]), Err(Fault));
    assert_eq!(region.write(u64::MAX, &[0; 8]), Err(Fault));
    assert_eq!(region.read_into(16, &mut [0]), Err(Fault));
    assert_eq!(region.read_into(16, &mut []), Ok(()));
    assert_eq!(region.fetch_add(16, 1), Err(Fault));
    assert_eq!(memory.bytes(), vec![0x5a; 24]);
}

#[test]
fn a_range_does_not_wrap() {
    // SAFETY: nothing is accessed.
    let region = unsafe { UserRegion::new(core::ptr::without_provenance_mut(usize::MAX), 2, true) };
    assert!(region.is_none());
}

#[test]
fn read_only_registrations_refuse_stores() {
    let mut memory = Owned::new(16);
    // SAFETY: nothing else touches the words meanwhile.
    let region = unsafe { UserRegion::new(memory.words.as_mut_ptr().cast(), 16, false) };
    let region = region.expect("range");
    assert_eq!(region.write(0, &[1]), Err(Fault));
    assert_eq!(region.fetch_add(0, 1), Err(Fault));
    assert_eq!(region.compare_swap(0, 1, 1), Err(Fault));
    assert_eq!(region.store_word(0, &[1; 8]), Err(Fault));
    assert_eq!(region.read_into(0, &mut [0; 16]), Ok(()));
    assert_eq!(memory.bytes(), vec![0x5a; 24]);
}

#[test]
fn atomics_return_the_word_before() {
    let mut memory = Owned::new(16);
    memory.words[1] = u64::MAX;
    let region = memory.region();
    assert_eq!(region.fetch_add(8, 3), Ok(u64::MAX));
    assert_eq!(region.compare_swap(8, 2, 77), Ok(2));
    assert_eq!(region.compare_swap(8, 2, 99), Ok(77));
    assert_eq!(region.store_word(0, &[1, 2, 3, 4, 5, 6, 7, 8]), Ok(()));
    assert_eq!(region.flush(0, 16, false), Ok(()));
    assert_eq!(
        memory.words[..2],
        [u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]), 77]
    );
}

/// The gathered copy and its CRC agree with a CRC over the same bytes, however they are cut and
/// wherever they lie.
#[test]
fn gathers_with_the_icrc() {
    const MOST: usize = if cfg!(miri) { 600 } else { 5000 };
    let mut memory = Owned::new(MOST);
    let payload = pattern(MOST);
    let region = memory.region();
    region.write(0, &payload).expect("mapped");
    let gather = |from: usize, packet: &mut [u8], icrc: &mut Icrc| {
        let gathered = region.gather(from as u64, packet, icrc);
        gathered.expect("mapped");
    };
    for len in [
        0, 1, 127, 128, 511, 512, 513, 639, 640, 641, 1024, 4096, MOST,
    ] {
        for start in [0, 1, 33, 512] {
            let expected = &payload[start..(start + len).min(MOST)];
            let header = [0x5a; 28];
            for (cut, header) in [
                (0, &header[..]),
                (expected.len() / 3, &header[..12]),
                (expected.len(), &[]),
            ] {
                let mut whole = Icrc::new();
                whole.update_ib(header);
                whole.update(expected);
                let mut packet = vec![0; expected.len()];
                let mut icrc = Icrc::new();
                icrc.update_ib(header);
                let (first, second) = packet.split_at_mut(cut);
                gather(start, first, &mut icrc);
                gather(start + cut, second, &mut icrc);
                assert_eq!(packet, expected, "{len} bytes from {start}, cut at {cut}");
                let (got, right) = (icrc.finish(), whole.finish());
                assert_eq!(got, right, "{len} bytes from {start}, cut at {cut}");
            }
        }
    }
}

/// The last store ends with the message, is aligned, and is as wide as both allow.
#[test]
fn width_of_the_last_store() {
    for (addr, len, width) in [
        (0, 0, None),
        (8, 8, Some(8)),
        (4, 8, Some(4)),
        (4, 12, Some(8)),
        (6, 2, Some(2)),
        (7, 1, Some(1)),
        (1, 8, Some(1)),
        (0, 7, Some(1)),
        (0, 6, Some(2)),
        (0, 4096, Some(8)),
        (3, 4096, Some(1)),
    ] {
        assert_eq!(last_store(addr, len), width, "{len} at {addr}");
    }
}

/// Whoever sees the last byte sees all bytes before it; a message of 8 aligned bytes appears whole.
#[test]
fn last_byte_is_visible_last() {
    use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    let rounds: u8 = if cfg!(miri) { 3 } else { 200 };
    for len in [8usize, 24, 61, 4096] {
        let len = if cfg!(miri) { len.min(61) } else { len };
        let mut memory = Owned::new(len);
        let region = &memory.region();
        region.write(0, &vec![0; len]).expect("mapped");
        let seen = &AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 1..=rounds {
                    region.write(0, &vec![round; len]).expect("mapped");
                    while seen.load(Ordering::Acquire) != u64::from(round) {
                        std::thread::yield_now();
                    }
                }
            });
            // SAFETY: within the memory, which outlives the scope.
            let last = unsafe { AtomicU8::from_ptr(region.addr().add(len - 1)) };
            for round in 1..=rounds {
                while last.load(Ordering::Acquire) != round {
                    std::thread::yield_now();
                }
                let mut bytes = vec![0; len];
                region.read_into(0, &mut bytes).expect("mapped");
                assert!(
                    bytes.iter().all(|byte| *byte == round),
                    "{len} bytes, round {round}"
                );
                seen.store(u64::from(round), Ordering::Release);
            }
        });
    }
}

/// Concurrent atomics lose nothing, whoever else copies the same bytes.
#[test]
fn atomics_are_atomic() {
    let mut memory = Owned::new(64);
    memory.words[0] = 0;
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let region = &memory.region();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                for _ in 0..rounds {
                    region.fetch_add(0, 1).expect("mapped");
                    let mut bytes = [0; 64];
                    region.read_into(0, &mut bytes).expect("mapped");
                    region.write(8, &bytes[8..]).expect("mapped");
                }
            });
        }
    });
    assert_eq!(memory.words[0], 3 * rounds);
}

/// Pages that vanish, become read-only or lie beyond the end of a file.
#[cfg(not(miri))]
mod faults {
    use super::*;
    use crate::memory::guard::page_size;

    /// An anonymous mapping that the test takes apart.
    struct Mapping {
        addr: *mut u8,
        pages: usize,
    }

    impl Mapping {
        fn new(pages: usize) -> Self {
            Self::with(pages, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
        }

        fn with(pages: usize, flags: i32, fd: i32) -> Self {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let null = core::ptr::null_mut();
            // SAFETY: a fresh mapping where the kernel likes.
            let addr = unsafe { libc::mmap(null, pages * page_size(), access, flags, fd, 0) };
            assert_ne!(
                addr,
                libc::MAP_FAILED,
                "{}",
                std::io::Error::last_os_error()
            );
            Self {
                addr: addr.cast(),
                pages,
            }
        }

        fn page(&self, page: usize) -> *mut u8 {
            self.addr.wrapping_add(page * page_size())
        }

        fn unmap(&self, page: usize) {
            // SAFETY: a page of this mapping; only guarded accesses follow.
            assert_eq!(
                unsafe { libc::munmap(self.page(page).cast(), page_size()) },
                0
            );
        }

        fn make_read_only(&self, page: usize) {
            let page = self.page(page).cast();
            // SAFETY: a page of this mapping; only guarded accesses follow.
            assert_eq!(
                unsafe { libc::mprotect(page, page_size(), libc::PROT_READ) },
                0
            );
        }

        /// Which pages are in memory.
        fn resident(&self) -> Vec<bool> {
            let mut pages = vec![0; self.pages];
            // SAFETY: one byte for each page of this mapping.
            let result = unsafe {
                libc::mincore(
                    self.addr.cast(),
                    self.pages * page_size(),
                    pages.as_mut_ptr(),
                )
            };
            assert_eq!(result, 0);
            pages.iter().map(|page| page & 1 != 0).collect()
        }

        fn region(&self) -> UserRegion {
            // SAFETY: only the region touches the mapping.
            unsafe { UserRegion::new(self.addr, self.pages * page_size(), true) }.expect("range")
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the mapping of this test, all users gone.
            unsafe { libc::munmap(self.addr.cast(), self.pages * page_size()) };
        }
    }

    #[test]
    fn pages_are_made_present_before_they_are_needed() {
        let (mapping, page) = (Mapping::new(4), page_size() as u64);
        let region = mapping.region();
        assert_eq!(region.populate(page + 8, page, true), Ok(()));
        assert_eq!(mapping.resident(), [false, true, true, false]);
        mapping.make_read_only(0);
        assert_eq!(region.populate(0, 8, true), Err(Fault));
        assert_eq!(region.populate(0, 8, false), Ok(()));
        mapping.unmap(3);
        assert_eq!(region.populate(3 * page, 8, false), Err(Fault));
        assert_eq!(region.populate(3 * page, 0, false), Ok(()));
        assert_eq!(region.populate(4 * page, 1, false), Err(Fault));
    }

    #[test]
    fn an_unmapped_page_is_an_error() {
        let (mapping, page) = (Mapping::new(3), page_size());
        mapping.unmap(1);
        let region = mapping.region();
        let at = |page_offset: usize| (page + page_offset) as u64;
        for len in [1, 2, 3, 4, 7, 8, 15, 16, 40, 79, 80, 300, page] {
            assert_eq!(
                region.write(at(0), &vec![1; len]),
                Err(Fault),
                "write {len}"
            );
            assert_eq!(
                region.read_into(at(0), &mut vec![1; len]),
                Err(Fault),
                "read {len}"
            );
            // Begins on a good page, ends on the bad one, and the other way round.
            let before = at(0) - len as u64 / 2;
            assert_eq!(
                region.write(before, &vec![1; len]),
                Err(Fault),
                "into {len}"
            );
            if len > 1 {
                let after = at(page) - len as u64 / 2;
                assert_eq!(
                    region.write(after, &vec![1; len]),
                    Err(Fault),
                    "out of {len}"
                );
            }
        }
        assert_eq!(region.fetch_add(at(8), 1), Err(Fault));
        assert_eq!(region.compare_swap(at(8), 1, 1), Err(Fault));
        assert_eq!(region.store_word(at(8), &[0; 8]), Err(Fault));
        assert_eq!(region.flush(at(0), 8, true), Err(Fault));
        let mut icrc = Icrc::new();
        for (from, len) in [(0, 64), (0, page), (-300, page), (-512, 1024)] {
            let from = at(0).wrapping_add_signed(from);
            let gathered = region.gather(from, &mut vec![0; len], &mut icrc);
            assert_eq!(gathered, Err(Fault), "{len} from {from}");
        }
        // The neighbours work as before.
        assert_eq!(region.write(0, &vec![7; page]), Ok(()));
        assert_eq!(region.fetch_add(2 * page as u64, 5), Ok(0));
        assert_eq!(region.flush(0, page as u64, true), Ok(()));
    }

    #[test]
    fn a_read_only_page_can_be_read() {
        let mapping = Mapping::new(1);
        let region = mapping.region();
        region.write(0, &[9; 64]).expect("writable");
        mapping.make_read_only(0);
        for len in [1, 2, 4, 8, 30, 64] {
            assert_eq!(region.write(0, &vec![1; len]), Err(Fault), "{len}");
        }
        assert_eq!(region.fetch_add(0, 1), Err(Fault));
        assert_eq!(region.compare_swap(0, 1, 1), Err(Fault));
        assert_eq!(region.store_word(0, &[0; 8]), Err(Fault));
        let mut bytes = [0; 64];
        assert_eq!(region.read_into(0, &mut bytes), Ok(()));
        assert_eq!(bytes, [9; 64]);
    }

    /// A file that was truncated under its mapping raises SIGBUS, not SIGSEGV.
    #[test]
    fn beyond_the_end_of_a_file() {
        // SAFETY: a fresh descriptor, closed below.
        let file = unsafe { libc::memfd_create(c"hirail-test".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0);
        // SAFETY: a descriptor of this test.
        assert_eq!(
            unsafe { libc::ftruncate(file, page_size() as libc::off_t) },
            0
        );
        let mapping = Mapping::with(2, libc::MAP_SHARED, file);
        let region = mapping.region();
        assert_eq!(region.write(0, &[1; 100]), Ok(()));
        assert_eq!(region.write(page_size() as u64, &[1; 100]), Err(Fault));
        assert_eq!(
            region.read_into(page_size() as u64, &mut [1; 100]),
            Err(Fault)
        );
        // SAFETY: a descriptor of this test.
        unsafe { libc::close(file) };
    }

    /// One thread maps and unmaps while others copy: errors, no crash, and no torn result.
    #[test]
    fn unmapping_under_load() {
        let mapping = &Mapping::new(4);
        let region = &mapping.region();
        let stop = &core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        let (mut good, mut bad) = (0u32, 0u32);
                        let mut bytes = vec![0; 3 * page_size()];
                        while !stop.load(Ordering::Relaxed) || bad == 0 || good == 0 {
                            let outcomes = [
                                region.write(100, &bytes),
                                region.read_into(100, &mut bytes),
                                region.fetch_add(page_size() as u64, 1).map(|_| ()),
                            ];
                            for outcome in outcomes {
                                *(if outcome.is_ok() { &mut good } else { &mut bad }) += 1;
                            }
                        }
                        (good, bad)
                    })
                })
                .collect();
            let page = mapping.page(1);
            for round in 0..2000 {
                let access = match round % 2 {
                    0 => libc::PROT_NONE,
                    _ => libc::PROT_READ | libc::PROT_WRITE,
                };
                // SAFETY: a page of this mapping, touched by guarded accesses only.
                assert_eq!(
                    unsafe { libc::mprotect(page.cast(), page_size(), access) },
                    0
                );
                if round % 100 < 2 {
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
            }
            // Both outcomes must remain possible until every worker has seen both.
            let mut round = 0;
            stop.store(true, Ordering::Relaxed);
            while !workers.iter().all(|worker| worker.is_finished()) {
                round += 1;
                let access = [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE][round % 2];
                // SAFETY: as above.
                assert_eq!(
                    unsafe { libc::mprotect(page.cast(), page_size(), access) },
                    0
                );
                std::thread::sleep(std::time::Duration::from_micros(300));
                assert!(round < 30_000, "workers saw only one outcome");
            }
        });
    }

    /// What architectures without assembly use agrees with the assembly.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn portable_accesses_agree() {
        use crate::memory::portable;

        let (mapping, page) = (Mapping::new(2), page_size());
        let at = mapping.addr;
        let bytes = pattern(100);
        let mut back = vec![0; 100];
        // SAFETY: `at` is user memory, the vectors are their own.
        unsafe {
            assert_eq!(
                portable::copy_to(at.wrapping_add(3), bytes.as_ptr(), 100),
                Ok(())
            );
            assert_eq!(
                portable::copy_from(back.as_mut_ptr(), at.wrapping_add(3), 100),
                Ok(())
            );
            assert_eq!(back, bytes);
            assert_eq!(portable::store_8(at, 5), Ok(()));
            assert_eq!(portable::fetch_add(at, 6), Ok(5));
            assert_eq!(portable::compare_swap(at, 11, 12), Ok(11));
            assert_eq!(portable::compare_swap(at, 11, 13), Ok(12));
            assert_eq!(portable::store_4(at.wrapping_add(8), 0x0403_0201), Ok(()));
            assert_eq!(portable::store_2(at.wrapping_add(12), 0x0605), Ok(()));
            assert_eq!(portable::store_1(at.wrapping_add(14), 7), Ok(()));
        }
        let region = mapping.region();
        region.read_into(0, &mut back[..15]).expect("mapped");
        let mut expected = 12u64.to_ne_bytes().to_vec();
        expected.extend(0x0403_0201u32.to_ne_bytes());
        expected.extend(0x0605u16.to_ne_bytes());
        expected.push(7);
        assert_eq!(back[..15], expected);

        mapping.unmap(1);
        let at = mapping.page(1);
        // SAFETY: as above; the page is gone.
        unsafe {
            assert_eq!(portable::copy_to(at, bytes.as_ptr(), 100), Err(Fault));
            let across = at.wrapping_sub(50);
            assert_eq!(
                portable::copy_from(back.as_mut_ptr(), across, 100),
                Err(Fault)
            );
            assert_eq!(portable::store_8(at, 5), Err(Fault));
            assert_eq!(portable::fetch_add(at, 6), Err(Fault));
            assert_eq!(portable::compare_swap(at, 11, 12), Err(Fault));
        }
        let _ = page;
    }
}

/// What happens to faults that are not ours, seen from outside: each case is a child process.
#[cfg(all(not(miri), target_arch = "x86_64"))]
mod chaining {
    use core::ffi::{c_int, c_void};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use super::*;

    const CASE: &str = "HIRAIL_TEST_FAULT_CASE";

    /// The faulting address that the handlers below expect.
    const BAD: usize = 0x10;

    extern "C" fn with_info(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the kernel filled it.
        let address = unsafe { (*info).si_addr() }.addr();
        let code = if signal == libc::SIGSEGV && address == BAD {
            40
        } else {
            41
        };
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) };
    }

    extern "C" fn plain(signal: c_int) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(if signal == libc::SIGSEGV { 50 } else { 51 }) };
    }

    /// Returns the first time: the instruction faults again, and then the default applies.
    extern "C" fn once(_: c_int) {}

    fn set(handler: usize, flags: c_int) {
        // SAFETY: all-zero is a valid action.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // SAFETY: handlers of this test.
        assert_eq!(
            unsafe { libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut()) },
            0
        );
    }

    /// The child: sets up a handler, shows that the guard works, then faults outside of it.
    fn child(case: &str) {
        // No core files from crashes on purpose.
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: only lowers a limit of this process.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
        match case {
            "default" | "sent" => set(libc::SIG_DFL, 0),
            "ignored" | "ignored-sent" => set(libc::SIG_IGN, 0),
            "info" => set(with_info as *const () as usize, libc::SA_SIGINFO),
            "plain" => set(plain as *const () as usize, 0),
            "once" => set(once as *const () as usize, libc::SA_RESETHAND),
            "std" => {}
            _ => unreachable!("{case}"),
        }
        let nowhere = core::ptr::without_provenance_mut(BAD);
        // SAFETY: nothing is mapped there.
        let region = unsafe { UserRegion::new(nowhere, 64, true) }.expect("range");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| assert_eq!(region.write(0, &[0; 40]), Err(Fault)));
            }
        });
        assert_eq!(region.read_into(0, &mut [0; 8]), Err(Fault));
        if case.ends_with("sent") {
            // SAFETY: what the case is about.
            unsafe { libc::raise(libc::SIGSEGV) };
        } else {
            // SAFETY: faults, as the case wants.
            unsafe { core::arch::asm!("mov al, byte ptr [{}]", in(reg) BAD, out("al") _) };
        }
        std::process::exit(60);
    }

    fn run(case: &str) -> ExitStatus {
        Command::new(std::env::current_exe().expect("own path"))
            .args([
                "--exact",
                "memory::tests::chaining::previous_handlers",
                "--nocapture",
            ])
            .env(CASE, case)
            .output()
            .expect("child")
            .status
    }

    #[test]
    fn previous_handlers() {
        if let Ok(case) = std::env::var(CASE) {
            return child(&case);
        }
        for (case, code, signal) in [
            ("default", None, Some(libc::SIGSEGV)),
            ("sent", None, Some(libc::SIGSEGV)),
            ("ignored", None, Some(libc::SIGSEGV)),
            ("ignored-sent", Some(60), None),
            ("info", Some(40), None),
            ("plain", Some(50), None),
            ("once", None, Some(libc::SIGSEGV)),
            ("std", None, Some(libc::SIGSEGV)),
        ] {
            let status = run(case);
            assert_eq!(
                (status.code(), status.signal()),
                (code, signal),
                "{case}: {status}"
            );
        }
    }
}
