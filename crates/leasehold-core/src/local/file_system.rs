//! Which file system a directory is on, and whether other machines or programs can change its files: file locks may mean
//! nothing to them.

use std::io;
use std::os::fd::AsFd;

use crate::check::Check;

/// The file system of a directory.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use leasehold_core::local::FileSystem;
/// let directory = std::fs::File::open("/")?;
/// assert!(!FileSystem::of(&directory)?.name.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSystem {
    /// What it is called, or its number.
    pub name: String,
    /// Whether others than this kernel can change its files.
    pub is_shared: bool,
}

impl FileSystem {
    /// The file system of an open directory.
    ///
    /// # Errors
    /// When the system does not say.
    #[cfg(target_os = "linux")]
    pub fn of(directory: impl AsFd) -> io::Result<Self> {
        // The kernel's type differs by machine; the magic numbers have 32 bits on all of them.
        Ok(Self::by_magic(rustix::fs::fstatfs(directory)?.f_type as u32))
    }

    /// The file system of an open directory.
    ///
    /// # Errors
    /// When the system does not say.
    #[cfg(target_vendor = "apple")]
    pub fn of(directory: impl AsFd) -> io::Result<Self> {
        Ok(Self::by_flags(rustix::fs::fstatfs(directory)?.f_flags))
    }

    /// Nobody tells; the manual does.
    ///
    /// # Errors
    /// None.
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub fn of(_directory: impl AsFd) -> io::Result<Self> {
        Ok(Self { name: "unknown".to_owned(), is_shared: false })
    }

    /// The check of a store that relies on file locks. The user can accept a shared file system, which is then a warning.
    pub fn check(&self, network: Network) -> Check {
        let name = "file system";
        if !self.is_shared {
            return Check::ok(name, &self.name);
        }
        let effect = "clients on other machines may not see each other's locks";
        match network {
            Network::Refused => Check::refused(name, &self.name)
                .effect(effect)
                .remedy("choose a directory on a local disk, or accept the risk with network=on"),
            Network::Accepted => {
                Check::warning(name, &self.name).effect(effect).remedy("choose a directory on a local disk")
            }
        }
    }

    #[cfg(any(target_os = "linux", test))]
    fn by_magic(magic: u32) -> Self {
        let called = |table: &[(u32, &str)]| {
            table.iter().find(|(known, _)| *known == magic).map(|(_, name)| (*name).to_owned())
        };
        let shared = called(&SHARED);
        let is_shared = shared.is_some();
        let name = shared.or_else(|| called(&LOCAL)).unwrap_or_else(|| format!("{magic:#x}"));
        Self { name, is_shared }
    }

    /// The system says itself which are local.
    #[cfg(any(target_vendor = "apple", test))]
    fn by_flags(flags: u32) -> Self {
        const MNT_LOCAL: u32 = 0x1000;
        let is_shared = flags & MNT_LOCAL == 0;
        let name = if is_shared { "a network file system" } else { "local" };
        Self { name: name.to_owned(), is_shared }
    }
}

/// Whether a store may be on a file system that other machines share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// The store does not open there.
    #[default]
    Refused,
    /// The user accepts the risk.
    Accepted,
}

/// The usual local ones, for display.
#[cfg(any(target_os = "linux", test))]
const LOCAL: [(u32, &str); 9] = [
    (0x0000_ef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0xca45_1a4e, "bcachefs"),
    (0x8584_58f6, "ramfs"),
];

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
            assert!(FileSystem::by_magic(magic).is_shared, "{magic:x}");
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
            assert!(!FileSystem::by_magic(magic).is_shared, "{magic:x}");
        }
    }

    #[test]
    fn a_system_that_knows_what_is_local_is_believed() {
        assert!(!FileSystem::by_flags(0x0480_1000).is_shared);
        assert!(FileSystem::by_flags(0x0000_0018).is_shared);
    }
}
