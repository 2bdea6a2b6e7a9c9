//! Calls and streams on an HTTP/2 connection: five bytes before every message, and a status after the last.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request, Version};
use leasehold_core::ErrorKind;
use prost::Message;

use super::fault::Fault;

/// The largest message that is believed: a server that announces more is none of ours.
const LARGEST: usize = 256 << 20;

/// What is the same for all calls on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) requests: SendRequest<Bytes>,
    /// `http://host:port` or `https://host:port`.
    pub(crate) origin: String,
    pub(crate) token: Option<http::HeaderValue>,
}

impl Caller {
    /// Sends one message and answers with the first that comes back.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        path: &str,
        question: &impl Message,
    ) -> Result<A, Fault> {
        let mut incoming = self.open(path, question, true).await?;
        match incoming.next().await? {
            Some(answer) => Ok(answer),
            None => Err(Fault::lost(ErrorKind::Protocol, "the server answered nothing", path)),
        }
    }

    /// Sends one message, and hears what comes back for as long as it is listened to.
    pub(crate) async fn stream(&self, path: &str, question: &impl Message) -> Result<Incoming, Fault> {
        self.open(path, question, false).await
    }

    async fn open(&self, path: &str, question: &impl Message, is_last: bool) -> Result<Incoming, Fault> {
        let mut request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("{}/{path}", self.origin))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            // A member without a leader says so at once, and ends its watches.
            .header("hasleader", "true");
        if let Some(token) = &self.token {
            request = request.header("token", token);
        }
        let request =
            request.body(()).map_err(|e| Fault::lost(ErrorKind::Invalid, "the address is none", e))?;
        let unsent = |e| Fault::lost(ErrorKind::Unavailable, "the connection is closed", e);
        let mut requests = self.requests.clone().ready().await.map_err(unsent)?;
        let (response, mut outgoing) = requests.send_request(request, false).map_err(unsent)?;
        outgoing.send_data(framed(question), is_last).map_err(broken)?;
        let response = response.await.map_err(broken)?;
        if response.status() != http::StatusCode::OK {
            let (message, code) =
                ("this is no gRPC server: name the client port of an etcd server", response.status());
            return Err(Fault::lost(ErrorKind::Protocol, message, code.to_string()));
        }
        if let Some(fault) = status(response.headers()) {
            return Err(fault);
        }
        let outgoing = (!is_last).then_some(outgoing);
        Ok(Incoming { stream: response.into_body(), buffer: BytesMut::new(), _outgoing: outgoing })
    }
}

/// What comes back.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: RecvStream,
    buffer: BytesMut,
    /// Open for as long as we listen: its end would end the stream.
    _outgoing: Option<h2::SendStream<Bytes>>,
}

impl Incoming {
    /// The next message; `None` when the server ended the stream in good order.
    pub(crate) async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Fault> {
        loop {
            if let Some(message) = self.take()? {
                return A::decode(message).map(Some).map_err(misunderstood);
            }
            match self.stream.data().await {
                Some(data) => {
                    let data = data.map_err(broken)?;
                    self.buffer.extend_from_slice(&data);
                    self.stream.flow_control().release_capacity(data.len()).map_err(broken)?;
                }
                None => {
                    let trailers = self.stream.trailers().await.map_err(broken)?;
                    return trailers.as_ref().and_then(status).map_or(Ok(None), Err);
                }
            }
        }
    }

    /// A whole message, if there is one.
    fn take(&mut self) -> Result<Option<Bytes>, Fault> {
        let Some((prefix, _)) = self.buffer.split_first_chunk::<5>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 || length > LARGEST {
            return Err(misunderstood("a message that is compressed or too large"));
        }
        if self.buffer.len() < 5 + length {
            return Ok(None);
        }
        self.buffer.advance(5);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("no request is that large"));
    message.encode(&mut frame).expect("the buffer grows");
    frame.freeze()
}

/// What a gRPC status says, unless it says that all is well.
fn status(headers: &HeaderMap) -> Option<Fault> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().unwrap_or(2);
    let message = headers.get("grpc-message").map_or(&b""[..], |value| value.as_bytes());
    let message = percent_encoding::percent_decode(message).decode_utf8_lossy();
    (code != 0).then(|| Fault::of(code, &message))
}

fn broken(cause: h2::Error) -> Fault {
    Fault::lost(ErrorKind::Indeterminate, "the connection broke: it may have happened", cause)
}

fn misunderstood(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Fault {
    Fault::lost(ErrorKind::Protocol, "the server answered something that is no message of etcd's", cause)
}
