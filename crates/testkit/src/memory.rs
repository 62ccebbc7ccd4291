//! Registered memory as a vector that the test keeps a handle to.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hirail_rnic::{Fault, Region};

/// Bytes that several handles share. Each handle may be registered.
#[derive(Clone, Default)]
pub struct Memory(Rc<Shared>);

#[derive(Default)]
struct Shared {
    bytes: RefCell<Vec<u8>>,
    is_gone: Cell<bool>,
    stores: Cell<u64>,
    flushes: Cell<u64>,
}

impl Memory {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        Self::from(vec![0; len])
    }

    /// A copy of `len` bytes at `offset`.
    ///
    /// # Panics
    ///
    /// If the memory is shorter.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.0.bytes.borrow()[offset..offset + len].to_vec()
    }

    /// Calls `look` with all bytes.
    pub fn with<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.0.bytes.borrow())
    }

    /// Stores `bytes` at `offset`, as the program that owns the memory would.
    ///
    /// # Panics
    ///
    /// If the memory is shorter.
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        self.0.bytes.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// The 64-bit word at `offset`, in host order.
    ///
    /// # Panics
    ///
    /// If the memory is shorter.
    pub fn word(&self, offset: usize) -> u64 {
        let bytes = self.0.bytes.borrow();
        u64::from_ne_bytes(*bytes[offset..].first_chunk().expect("eight bytes"))
    }

    /// Stores a 64-bit word at `offset`, in host order.
    ///
    /// # Panics
    ///
    /// If the memory is shorter.
    pub fn set_word(&self, offset: usize, word: u64) {
        self.fill(offset, &word.to_ne_bytes());
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes.borrow().len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From now on every access faults, as if the pages had been unmapped.
    pub fn unmap(&self) {
        self.0.is_gone.set(true);
    }

    /// How often the engine has stored something here.
    pub fn stores(&self) -> u64 {
        self.0.stores.get()
    }

    /// How often the engine has flushed something here.
    pub fn flushes(&self) -> u64 {
        self.0.flushes.get()
    }

    fn check(&self) -> Result<(), Fault> {
        if self.0.is_gone.get() {
            Err(Fault)
        } else {
            Ok(())
        }
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.check()?;
        self.fill(offset as usize, bytes);
        self.0.stores.set(self.0.stores.get() + 1);
        Ok(())
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        let shared = Shared {
            bytes: RefCell::new(bytes),
            ..Shared::default()
        };
        Self(Rc::new(shared))
    }
}

impl Region for Memory {
    type Payload<'a> = &'a [u8];
    type Held = Vec<u8>;

    fn hold(payload: &[u8], held: &mut Vec<u8>) {
        held.clear();
        held.extend_from_slice(payload);
    }

    fn held(held: &Vec<u8>) -> &[u8] {
        held
    }

    fn write(&self, offset: u64, payload: &[u8]) -> Result<(), Fault> {
        self.store(offset, payload)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.store(offset, bytes)
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.check()?;
        let from = offset as usize;
        bytes.copy_from_slice(&self.0.bytes.borrow()[from..from + bytes.len()]);
        Ok(())
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        self.check()?;
        let before = self.word(offset as usize);
        self.store(offset, &before.wrapping_add(add).to_ne_bytes())?;
        Ok(before)
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.check()?;
        let before = self.word(offset as usize);
        if before == compare {
            self.store(offset, &swap.to_ne_bytes())?;
        }
        Ok(before)
    }

    fn store_word(&self, offset: u64, payload: &[u8]) -> Result<(), Fault> {
        assert_eq!(payload.len(), 8, "ATOMIC WRITE stores eight bytes");
        self.store(offset, payload)
    }

    fn flush(&self, _offset: u64, _len: u64, _persistent: bool) -> Result<(), Fault> {
        self.check()?;
        self.0.flushes.set(self.0.flushes.get() + 1);
        Ok(())
    }
}
