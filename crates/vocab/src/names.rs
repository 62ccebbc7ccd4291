//! The macro behind every enum of this crate whose values have a number and a public name.
//! A variant is declared once: its doc comment is also the text that `explain` prints.

/// Declares a C-like enum with the numbers and names of the verbs, and its lookups.
macro_rules! names {
    (
        $(#[$meta:meta])*
        pub enum $type:ident {
            $( $(#[doc = $doc:literal])+ $variant:ident = $code:literal, $name:literal; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $type {
            $( $(#[doc = $doc])+ $variant = $code, )+
        }

        impl $type {
            /// Every value, by number.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The number that the verbs give it.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The value with this number; `None` if there is none.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$variant), )+
                    _ => None,
                }
            }

            /// The name that the verbs give it.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )+
                }
            }

            /// What it means, in a sentence or two.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $( Self::$variant => concat!($($doc),+).trim_ascii_start(), )+
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use names;
