//! Enums whose variants have a number and a name in the formats.

/// Declares such an enum. A variant is written as `Name = NUMBER, "name";`.
#[macro_export]
macro_rules! numbered {
    ($(#[$of_type:meta])* $type:ident {
        $($(#[$of_variant:meta])* $variant:ident = $number:literal, $name:literal;)*
    }) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum $type { $($(#[$of_variant])* $variant = $number,)* }

        impl $type {
            /// All of them, in the order of their numbers.
            pub const ALL: [$type; [$($number),*].len()] = [$($type::$variant),*];

            /// Its stable name.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// The one with this number.
            pub fn from_number(number: impl Into<u32>) -> Option<$type> {
                match number.into() {
                    $($number => Some($type::$variant),)*
                    _ => None,
                }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<$type> {
                match name {
                    $($name => Some($type::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
