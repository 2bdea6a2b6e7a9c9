//! One request over HTTP, for looking at servers without the help of any library.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// What a server on this port answers: the status and the body. `header` has its line's end, or is empty.
pub(crate) fn ask(
    port: u16,
    header: &str,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{header}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let status = said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}
