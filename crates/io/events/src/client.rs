//! One ZMTP subscription over any stream.

use std::{future::pending, io};

use continuum_wire::{
    Budget, Limits,
    zmtp::{self, Event, Message, Subscriber},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::limits::{
    HANDSHAKE_TIMEOUT, MAX_READ_BUFFER_BYTES, MESSAGE_TIMEOUT, PING_AFTER, READ_BUFFER_BYTES, SILENT_AFTER,
    WRITE_TIMEOUT,
};

/// What a subscription does with its connection.
pub trait Handler {
    /// The handshake is done; messages may follow.
    fn ready(&mut self);

    /// A message. Its bytes are gone afterwards.
    fn message(&mut self, message: &Message<'_>);
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The peer closed it.
    #[error("closed by the peer")]
    Closed,
    /// The network broke it.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The peer broke the protocol or a limit.
    #[error("refused: {0}")]
    Refused(#[from] zmtp::Error),
    /// The peer did not finish the handshake in time.
    #[error("no handshake in time")]
    Handshake,
    /// The peer fell silent.
    #[error("peer is silent")]
    Silent,
    /// The peer began a message and did not end it in time.
    #[error("a message did not end in time")]
    Unfinished,
    /// The peer does not take our bytes.
    #[error("peer does not read")]
    Stuck,
}

/// The prefixes to ask for.
#[derive(Debug)]
pub enum Topics {
    /// The same for the life of the connection.
    Fixed(Box<[u8]>),
    /// As they are at any time.
    Following(watch::Receiver<Vec<Box<[u8]>>>),
}

/// Runs a connection until it ends; dropping the future ends it too.
///
/// Messages are held within `budget`, if there is one; [`zmtp::Error::OverBudget`] ends the connection.
pub async fn run<S>(
    mut stream: S,
    limits: Limits,
    budget: Option<Budget>,
    mut topics: Topics,
    handler: &mut impl Handler,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut asked = match &mut topics {
        Topics::Fixed(topic) => vec![topic.clone()],
        Topics::Following(list) => list.borrow_and_update().clone(),
    };
    let mut subscriber = Subscriber::new(limits, asked.iter().cloned()).within(budget);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let handshake_until = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut ready = false;
    let mut heard = Instant::now();
    let mut pinged: Option<Instant> = None;
    let mut pings_work = false;
    // When the message that is under way began.
    let mut begun: Option<Instant> = None;
    loop {
        if let Err(ended) = flush(&mut stream, &mut subscriber).await {
            return ended;
        }
        let wake = match (ready, pings_work) {
            (false, _) => Some(handshake_until),
            (true, true) => {
                Some((pinged.map_or(heard, |at| at.max(heard)) + PING_AFTER).min(heard + SILENT_AFTER))
            }
            (true, false) => None,
        };
        let wake = wake.into_iter().chain(begun.map(|at| at + MESSAGE_TIMEOUT)).min();
        tokio::select! {
            biased;
            () = changed(&mut topics) => {
                if let Topics::Following(list) = &mut topics {
                    let wanted = list.borrow_and_update().clone();
                    asked.iter().filter(|topic| !wanted.contains(topic)).for_each(|topic| subscriber.cancel(topic));
                    wanted.iter().for_each(|topic| subscriber.subscribe(topic));
                    asked = wanted;
                }
            }
            read = stream.read(&mut buffer) => {
                let count = match read {
                    Ok(0) => return Ended::Closed,
                    Ok(count) => count,
                    Err(error) => return Ended::Io(error),
                };
                heard = Instant::now();
                let full = count == buffer.len();
                let mut input = buffer.get(..count).unwrap_or_default();
                loop {
                    match subscriber.push(&mut input) {
                        Ok(None) => break,
                        Ok(Some(Event::Message(message))) => {
                            begun = None;
                            handler.message(&message);
                        }
                        Ok(Some(Event::Alive)) => {}
                        Ok(Some(Event::Ready { minor })) => {
                            ready = true;
                            pings_work = minor >= 1;
                            handler.ready();
                        }
                        Err(error) => return Ended::Refused(error),
                    }
                }
                begun = subscriber.is_within_message().then(|| begun.unwrap_or(heard));
                // Here too: a peer may have always something to say in between.
                if is_late(begun) {
                    return Ended::Unfinished;
                }
                if begun.is_none() {
                    // The next message may be long in coming.
                    if buffer.len() > READ_BUFFER_BYTES {
                        buffer = vec![0; READ_BUFFER_BYTES];
                    }
                } else if full && buffer.len() < MAX_READ_BUFFER_BYTES {
                    buffer.resize(2 * buffer.len(), 0);
                }
            }
            () = at(wake) => {
                if !ready {
                    return Ended::Handshake;
                }
                if is_late(begun) {
                    return Ended::Unfinished;
                }
                if heard.elapsed() >= SILENT_AFTER {
                    return Ended::Silent;
                }
                // Without a time to live: the peer's own traffic, not our pings, keeps us subscribed.
                subscriber.ping(0);
                pinged = Some(Instant::now());
            }
        }
    }
}

fn is_late(begun: Option<Instant>) -> bool {
    begun.is_some_and(|at| at.elapsed() >= MESSAGE_TIMEOUT)
}

async fn flush<S: AsyncWrite + Unpin>(stream: &mut S, subscriber: &mut Subscriber) -> Result<(), Ended> {
    while !subscriber.outgoing().is_empty() {
        match timeout(WRITE_TIMEOUT, stream.write(subscriber.outgoing())).await {
            Err(_) => return Err(Ended::Stuck),
            Ok(Ok(0)) => return Err(Ended::Closed),
            Ok(Ok(count)) => subscriber.sent(count),
            Ok(Err(error)) => return Err(Ended::Io(error)),
        }
    }
    Ok(())
}

async fn changed(topics: &mut Topics) {
    match topics {
        Topics::Fixed(_) => pending().await,
        Topics::Following(list) => {
            if list.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
