//! The schemes under test, and how their URLs are written.

use crate::ear::SECRET;

/// Stands for `host:port`.
pub(crate) const AT: &str = "AT";

/// A way to write URLs.
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    /// A URL that is right, with [`AT`] for where the server is and `SECRET` for the password.
    form: &'static str,
    /// The store whose server it is for.
    pub(crate) server: &'static str,
    /// Whether what it says is encrypted.
    pub(crate) is_tls: bool,
    /// Whether a URL may name several servers.
    pub(crate) has_hosts: bool,
}

/// Stores that are reached by network.
pub(crate) const SCHEMES: &[Scheme] = &[
    plain("redis", "redis", "redis://app:SECRET@AT/0?"),
    plain("redis+sentinel", "redis", "redis+sentinel://app:SECRET@AT/main?").with_hosts(),
    plain("redis+cluster", "redis", "redis+cluster://app:SECRET@AT?").with_hosts(),
    tls("rediss", "redis", "rediss://app:SECRET@AT?"),
    plain("postgres", "postgres", "postgres://app:SECRET@AT/db?sslmode=disable&").with_hosts(),
    tls("postgres+tls", "postgres", "postgres://app:SECRET@AT/db?sslmode=verify-full&").with_hosts(),
    plain("mysql", "mysql", "mysql://app:SECRET@AT/db?"),
    plain("zookeeper", "zookeeper", "zookeeper://app:SECRET@AT/locks?").with_hosts(),
    tls("zookeepers", "zookeeper", "zookeepers://app:SECRET@AT/locks?").with_hosts(),
    plain("etcd", "etcd", "etcd://app:SECRET@AT?").with_hosts(),
    tls("etcds", "etcd", "etcds://app:SECRET@AT?").with_hosts(),
    plain("memcached", "memcached", "memcached://AT?"),
    plain("consul", "consul", "consul://AT?").with_hosts(),
    tls("consuls", "consul", "consuls://AT?").with_hosts(),
];

const fn plain(name: &'static str, server: &'static str, form: &'static str) -> Scheme {
    Scheme { name, form, server, is_tls: false, has_hosts: false }
}

const fn tls(name: &'static str, server: &'static str, form: &'static str) -> Scheme {
    Scheme { name, form, server, is_tls: true, has_hosts: false }
}

impl Scheme {
    const fn with_hosts(self) -> Self {
        Self { has_hosts: true, ..self }
    }

    /// The URL for a server there, with these parameters.
    pub(crate) fn url(&self, at: &str, parameters: &str) -> String {
        let form = self.form.replace(AT, at).replace("SECRET", SECRET);
        let url = form + parameters;
        url.trim_end_matches(['?', '&']).to_owned()
    }

    /// Without the name of the scheme.
    pub(crate) fn after_the_scheme(&self) -> String {
        let url = self.url("localhost:1", "");
        url.split_once(':').expect("it is a URL").1.to_owned()
    }

    /// What stands before the colon.
    pub(crate) fn scheme(&self) -> &'static str {
        self.form.split(':').next().expect("it is a URL")
    }

    /// Whether a password is part of it.
    pub(crate) fn has_login(&self) -> bool {
        self.form.contains("SECRET")
    }
}
