//! `select!` and `select_biased!`.
//!
//! The published crate's macros name its own types, so these are written anew, with the same syntax, on top
//! of [`Select`](crate::Select). Steps: `@cases` reads the cases, and the default one apart; `@run` chooses
//! how to wait; `@add` adds the operations; `@complete` completes the selected one.

/// What `select!` and `select_biased!` expand to.
#[doc(hidden)]
#[macro_export]
macro_rules! crossbeam_channel_internal {
    (@cases [] ()) => {
        compile_error!("empty `select!` block")
    };
    (@cases $done:tt $default:tt) => {
        $crate::crossbeam_channel_internal!(@run $done $default)
    };
    // A block needs no comma after it.
    (@cases [$($done:tt)*] $default:tt $kind:ident $arguments:tt -> $result:pat => $body:block,
     $($rest:tt)*) => {
        $crate::crossbeam_channel_internal!(
            @cases [$($done)* {$kind $arguments $result => $body}] $default $($rest)*
        )
    };
    (@cases [$($done:tt)*] $default:tt $kind:ident $arguments:tt -> $result:pat => $body:block
     $($rest:tt)*) => {
        $crate::crossbeam_channel_internal!(
            @cases [$($done)* {$kind $arguments $result => $body}] $default $($rest)*
        )
    };
    (@cases [$($done:tt)*] $default:tt $kind:ident $arguments:tt -> $result:pat => $body:expr
     $(, $($rest:tt)*)?) => {
        $crate::crossbeam_channel_internal!(
            @cases [$($done)* {$kind $arguments $result => $body}] $default $($($rest)*)?
        )
    };
    (@cases $done:tt ($($default:tt)+) default $($rest:tt)*) => {
        compile_error!("there can be only one `default` case in a `select!` block")
    };
    (@cases $done:tt () default => $($rest:tt)*) => {
        $crate::crossbeam_channel_internal!(@cases $done () default() => $($rest)*)
    };
    (@cases $done:tt () default $timeout:tt => $body:block, $($rest:tt)*) => {
        $crate::crossbeam_channel_internal!(@cases $done ($timeout => $body) $($rest)*)
    };
    (@cases $done:tt () default $timeout:tt => $body:block $($rest:tt)*) => {
        $crate::crossbeam_channel_internal!(@cases $done ($timeout => $body) $($rest)*)
    };
    (@cases $done:tt () default $timeout:tt => $body:expr $(, $($rest:tt)*)?) => {
        $crate::crossbeam_channel_internal!(@cases $done ($timeout => $body) $($($rest)*)?)
    };

    // One receive needs no selection.
    (@run [{recv ($r:expr $(,)?) $result:pat => $body:expr}] ()) => {
        match $r {
            ref receiver => {
                let receiver: &$crate::Receiver<_> = receiver;
                let $result = receiver.recv();
                $body
            }
        }
    };
    (@run [{recv ($r:expr $(,)?) $result:pat => $body:expr}] (() => $default:expr)) => {
        match $r {
            ref receiver => {
                let receiver: &$crate::Receiver<_> = receiver;
                match receiver.try_recv() {
                    ::core::result::Result::Err($crate::TryRecvError::Empty) => $default,
                    received => {
                        let $result = received.map_err(|_| $crate::RecvError);
                        $body
                    }
                }
            }
        }
    };
    (@run $cases:tt $default:tt) => {{
        #[allow(unused_mut)]
        let mut select = if _IS_BIASED {
            $crate::Select::new_biased()
        } else {
            $crate::Select::new()
        };
        $crate::crossbeam_channel_internal!(@add select $cases [] $default)
    }};

    // A borrow of a temporary lasts until the end of the match.
    (@add $select:ident [{recv ($r:expr $(,)?) $($case:tt)*} $($more:tt)*] [$($ready:tt)*] $default:tt) => {
        match $r {
            ref receiver => {
                let receiver: &$crate::Receiver<_> = receiver;
                let index = $select.recv(receiver);
                $crate::crossbeam_channel_internal!(
                    @add $select [$($more)*] [$($ready)* {index recv (receiver) $($case)*}] $default
                )
            }
        }
    };
    (@add $select:ident [{send ($s:expr, $m:expr $(,)?) $($case:tt)*} $($more:tt)*] [$($ready:tt)*]
     $default:tt) => {
        match $s {
            ref sender => {
                let sender: &$crate::Sender<_> = sender;
                let index = $select.send(sender);
                $crate::crossbeam_channel_internal!(
                    @add $select [$($more)*] [$($ready)* {index send (sender, $m) $($case)*}] $default
                )
            }
        }
    };
    (@add $select:ident [] $ready:tt ()) => {{
        let operation = $select.select();
        $crate::crossbeam_channel_internal!(@complete operation $ready)
    }};
    (@add $select:ident [] $ready:tt (() => $default:expr)) => {{
        let operation = $select.try_select().ok();
        $crate::crossbeam_channel_internal!(@complete_or operation $ready $default)
    }};
    (@add $select:ident [] $ready:tt (($timeout:expr $(,)?) => $default:expr)) => {{
        let operation = $select.select_timeout($timeout).ok();
        $crate::crossbeam_channel_internal!(@complete_or operation $ready $default)
    }};

    // The operation is gone on every way, so that the cases may move what it borrows.
    (@complete_or $operation:ident $ready:tt $default:expr) => {
        if $operation.is_none() {
            ::core::mem::drop($operation);
            $default
        } else {
            let operation = $operation.unwrap();
            $crate::crossbeam_channel_internal!(@complete operation $ready)
        }
    };
    (@complete $operation:ident [{$index:ident $kind:ident $arguments:tt $result:pat => $body:expr}
                                 $($more:tt)*]) => {
        if $operation.index() == $index {
            let $result = $operation.$kind $arguments;
            $body
        } else {
            $crate::crossbeam_channel_internal!(@complete $operation [$($more)*])
        }
    };
    (@complete $operation:ident []) => {
        ::core::unreachable!("an operation that was not selected")
    };
    (@$($tokens:tt)*) => {
        compile_error!(
            "expected `recv(r) -> pattern => body`, `send(s, m) -> pattern => body` or \
             `default => body` in a `select!` block"
        )
    };

    ($($tokens:tt)*) => {
        $crate::crossbeam_channel_internal!(@cases [] () $($tokens)*)
    };
}

#[macro_export]
macro_rules! select {
    ($($tokens:tt)*) => {{
        const _IS_BIASED: bool = false;
        $crate::crossbeam_channel_internal!($($tokens)*)
    }};
}

#[macro_export]
macro_rules! select_biased {
    ($($tokens:tt)*) => {{
        const _IS_BIASED: bool = true;
        $crate::crossbeam_channel_internal!($($tokens)*)
    }};
}
