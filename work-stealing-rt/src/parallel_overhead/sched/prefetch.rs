//! A hint to the processor.

/// Asks the processor to fetch the memory at `place` for a write soon. Affects speed only.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a hint: any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(place.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
