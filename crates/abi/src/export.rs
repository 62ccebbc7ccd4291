//! Putting functions into the dynamic symbol table under the names and versions that C programs are
//! linked to.
//!
//! rustc decides by itself what a `cdylib` exports and knows no versions. So each function gets a
//! trampoline in assembly whose `.symver` directive names symbol and version; the linker's version
//! script declares the nodes. The name of an export must not be that of a Rust symbol as well.

/// Exports functions: `path => "name" "@@NODE"` for what programs link to now, `"@NODE"` for what
/// only old ones ask for; several versions may follow one another.
#[macro_export]
macro_rules! export {
    ($($function:path => $name:literal $($version:literal)+;)*) => { $(
        core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            $(
                concat!(".globl __hirail.", $name, $version),
                concat!(".type __hirail.", $name, $version, ",@function"),
                concat!("__hirail.", $name, $version, ":"),
                concat!(".symver __hirail.", $name, $version, ",", $name, $version, ",remove"),
            )+
            $crate::jump!(),
            ".popsection",
            function = sym $function,
        );
    )* };
}

/// The instruction that goes on to the function.
#[cfg(target_arch = "x86_64")]
#[macro_export]
#[doc(hidden)]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

/// The instruction that goes on to the function.
#[cfg(target_arch = "aarch64")]
#[macro_export]
#[doc(hidden)]
macro_rules! jump {
    () => {
        "b {function}"
    };
}
