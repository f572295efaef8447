//! The allocator of a process that waits most of its life: little is kept that nobody uses.

/// Keeps freed memory in one place instead of one for each thread, so that it can be given back. For a process that idles
/// for months; to be called before threads are started. Does nothing where the allocator is not glibc's.
pub fn share_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(
            unsafe_code,
            reason = "a setting of the C library's allocator; takes two numbers, keeps no pointer"
        )]
        // SAFETY: mallopt may be called at any time; M_ARENA_MAX takes a count.
        let set = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        if set == 0 {
            tracing::debug!("the allocator keeps an arena for each thread");
        }
    }
}

/// Gives memory that was freed back to the system: after work that needed much of it, before a long wait. Takes
/// milliseconds; nothing where the allocator is not glibc's.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "the C library's allocator looks through its own free lists")]
        // SAFETY: malloc_trim may be called at any time from any thread.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
