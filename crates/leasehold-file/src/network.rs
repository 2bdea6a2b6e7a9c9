//! Whether another machine, or a program, keeps the files of a directory: its locks may mean nothing here.

use std::os::fd::OwnedFd;

use rustix::fs::fstatfs;
use rustix::io::Result;

/// Who keeps the files of an open directory, where that is not this kernel alone.
#[cfg(target_os = "linux")]
pub(crate) fn keeper(directory: &OwnedFd) -> Result<Option<&'static str>> {
    // The kernel's type differs by machine; the magic numbers have 32 bits on all of them.
    fstatfs(directory).map(|found| by_magic(found.f_type as u32))
}

/// Who keeps the files of an open directory, where that is not this kernel alone.
#[cfg(target_vendor = "apple")]
pub(crate) fn keeper(directory: &OwnedFd) -> Result<Option<&'static str>> {
    fstatfs(directory).map(|found| by_flags(found.f_flags))
}

/// Nobody tells; the manual does.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub(crate) fn keeper(_directory: &OwnedFd) -> Result<Option<&'static str>> {
    Ok(None)
}

/// The file systems whose files others can have, by the number that the kernel has for each: of networks, of clusters,
/// of the machine around a virtual one, and of programs, which may be any of these.
#[cfg(any(target_os = "linux", test))]
const SHARED: [(u32, &str); 25] = [
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x0000_564c, "NCP"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x2003_0528, "OrangeFS"),
    (0x1983_0326, "BeeGFS"),
    (0xaad7_aaea, "PanFS"),
    (0x0131_11a8, "IBRIX"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x6163_6673, "ACFS"),
    (0xbeef_dead, "SNFS"),
    (0x0102_1997, "9p"),
    (0x786f_4256, "a shared folder of VirtualBox"),
    (0xbacb_acbc, "a shared folder of VMware"),
    (0x7c7c_6673, "a shared folder of Parallels"),
    (0x00c0_ffee, "the file system of a host"),
    (0x6573_5546, "FUSE"),
];

#[cfg(any(target_os = "linux", test))]
fn by_magic(magic: u32) -> Option<&'static str> {
    SHARED.iter().find(|(shared, _)| *shared == magic).map(|(_, name)| *name)
}

/// The system says itself which are local.
#[cfg(any(target_vendor = "apple", test))]
fn by_flags(flags: u32) -> Option<&'static str> {
    const MNT_LOCAL: u32 = 0x1000;
    (flags & MNT_LOCAL == 0).then_some("a network file system")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_have_is_no_place_for_locks() {
        // As in the kernel's linux/magic.h, and what those who are not in it say of themselves.
        for magic in [
            0x6969,
            0x517b,
            0xff53_4d42,
            0xfe53_4d42,
            0x564c,
            0x5346_414f,
            0x6b41_4653,
            0x7375_7245,
            0x00c3_6400,
            0x0bd0_0bd0,
            0x2003_0528,
            0x1983_0326,
            0x0102_1997,
            0x6573_5546,
            0x7461_636f,
        ] {
            assert!(by_magic(magic).is_some(), "{magic:x}");
        }
    }

    #[test]
    fn what_one_kernel_has_for_itself_will_do() {
        // ext4, XFS, btrfs, tmpfs, ramfs, overlayfs, F2FS, ZFS, bcachefs, erofs, FAT, exFAT, squashfs.
        for magic in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x8584_58f6,
            0x794c_7630,
            0xf2f5_2010,
            0x2fc1_2fc1,
            0xca45_1a4e,
            0xe0f5_e1e2,
            0x4d44,
            0x2011_bab0,
            0x7371_7368,
        ] {
            assert_eq!(by_magic(magic), None, "{magic:x}");
        }
    }

    #[test]
    fn a_system_that_knows_what_is_local_is_believed() {
        assert_eq!(by_flags(0x0480_1000), None);
        assert_eq!(by_flags(0x0000_0018), Some("a network file system"));
    }
}
