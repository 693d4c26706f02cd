use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::{Frame, SizeHint};
use tokio::{sync::mpsc, time::sleep};

use super::{super::budget::tests::room, *};

const LIMIT: usize = 1 << 20;
const BUDGET: usize = 4 * LIMIT;

/// A body whose pieces come from a channel.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    announced: u64,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.announced);
        hint
    }
}

fn body(announced: usize) -> (mpsc::Sender<Bytes>, Pieces) {
    let (sender, pieces) = mpsc::channel(1);
    let announced = announced as u64;
    (sender, Pieces { pieces, announced })
}

/// Sends so many bytes with a pause before each piece, for as long as somebody reads.
fn trickle(sender: mpsc::Sender<Bytes>, piece: usize, pause: Duration, times: usize) {
    tokio::spawn(async move {
        for _ in 0..times {
            sleep(pause).await;
            if sender.send(Bytes::from(vec![b'x'; piece])).await.is_err() {
                return;
            }
        }
    });
}

#[tokio::test(start_paused = true)]
async fn what_is_reserved_follows_what_has_come() {
    let (bodies, room) = room(LIMIT, BUDGET);
    for (announced, wanted) in [
        (0, [1000, 4000, 4000, 4000, 9000]),
        (4500, [1000, 4000, 4000, 4000, 4500]),
        // More comes than was announced.
        (1500, [1000, 4000, 4000, 4000, 9000]),
    ] {
        let (sender, mut pieces) = body(announced);
        let reader = tokio::spawn({
            let room = room.clone();
            async move { read_body(&mut pieces, &room, None).await }
        });
        for (wanted, piece) in wanted.into_iter().zip([1000, 1000, 1500, 500, 500]) {
            sender.send(Bytes::from(vec![b'x'; piece])).await.unwrap();
            sleep(Duration::from_millis(1)).await;
            assert_eq!(bodies.held(), wanted, "{announced}");
        }
        drop(sender);
        let read = reader.await.unwrap().unwrap();
        assert_eq!((read.len(), bodies.held()), (4500, 4500));
        drop(read);
        assert_eq!(bodies.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_in_one_piece_is_not_copied() {
    let (bodies, room) = room(LIMIT, BUDGET);
    let (sender, mut pieces) = body(5);
    let piece = Bytes::from(vec![b'x'; 5]);
    sender.send(piece.clone()).await.unwrap();
    drop(sender);
    let read = read_body(&mut pieces, &room, None).await.unwrap();
    assert_eq!((read.as_ptr(), bodies.held()), (piece.as_ptr(), 5));
}

#[tokio::test(start_paused = true)]
async fn a_body_without_room_is_refused_and_leaves_none_taken() {
    let (bodies, room) = room(LIMIT, BUDGET);
    let others = room.share(BUDGET - BUDGET / 8 - 100_000).unwrap();
    let (sender, mut pieces) = body(LIMIT);
    trickle(sender, 10_000, Duration::ZERO, 100);
    assert_eq!(
        read_body(&mut pieces, &room, None).await.unwrap_err(),
        Error::BodiesFull
    );
    assert_eq!(bodies.held(), BUDGET - BUDGET / 8 - 100_000);
    // A small one has the part that is left.
    let (sender, mut pieces) = body(60_000);
    trickle(sender, 10_000, Duration::ZERO, 6);
    assert_eq!(read_body(&mut pieces, &room, None).await.unwrap().len(), 60_000);
    drop(others);
    let (sender, mut pieces) = body(LIMIT);
    trickle(sender, LIMIT / 64, Duration::ZERO, 64);
    assert_eq!(read_body(&mut pieces, &room, None).await.unwrap().len(), LIMIT);
    assert_eq!(bodies.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_dropped_gives_its_bytes_back() {
    let (bodies, room) = room(LIMIT, BUDGET);
    let (sender, mut pieces) = body(LIMIT);
    let reader = tokio::spawn(async move { read_body(&mut pieces, &room, None).await });
    for _ in 0..3 {
        sender.send(Bytes::from(vec![b'x'; 1000])).await.unwrap();
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bodies.held(), 4000);
    reader.abort();
    assert!(reader.await.unwrap_err().is_cancelled());
    assert_eq!(bodies.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_may_pause_and_may_be_slow_but_may_not_trickle() {
    let second = Duration::from_secs(1);
    let rate = usize::try_from(BODY_RATE).unwrap();
    // Bytes of a piece, the pause before each, pieces, and after how many seconds it is over; `None`: it is read.
    for (piece, pause, pieces, over) in [
        (1, BODY_GAP - second, 1, None),
        (1, BODY_GAP + second, 1, Some(30)),
        (1, BODY_GAP - second, 1000, Some(30)),
        (1, second, 1000, Some(30)),
        // Half of the rate: it has 30 seconds, and twice the time of what came.
        (rate / 2, second, 1000, Some(60)),
        (rate, second, 64, None),
        (2 * rate, 2 * second, 32, None),
    ] {
        let (_, room) = room(LIMIT, BUDGET);
        let (sender, mut body) = body(0);
        trickle(sender, piece, pause, pieces);
        let begun = Instant::now();
        let read = read_body(&mut body, &room, None).await;
        let case = format!("{piece} bytes every {pause:?}");
        match over {
            None => assert_eq!(read.unwrap().len(), piece * pieces, "{case}"),
            Some(seconds) => {
                assert_eq!(read.unwrap_err(), Error::TimedOut(Deadline::Body), "{case}");
                let late = begun.elapsed().as_secs().abs_diff(seconds);
                assert!(late <= 1, "{case}: {:?}", begun.elapsed());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn empty_pieces_and_the_end_of_the_request_end_it_as_well() {
    let (_, room) = room(LIMIT, BUDGET);
    let (sender, mut pieces) = body(0);
    trickle(sender, 0, Duration::from_secs(1), 1000);
    let begun = Instant::now();
    let read = read_body(&mut pieces, &room, None).await;
    assert_eq!(read.unwrap_err(), Error::TimedOut(Deadline::Body));
    assert_eq!(begun.elapsed().as_secs(), BODY_GRACE.as_secs());
    let (_sender, mut pieces) = body(0);
    let until = Instant::now() + Duration::from_secs(5);
    let read = read_body(&mut pieces, &room, Some(until)).await;
    assert_eq!(read.unwrap_err(), Error::TimedOut(Deadline::Body));
    assert_eq!(Instant::now(), until);
}

#[tokio::test(start_paused = true)]
async fn a_body_larger_than_the_limit_is_refused() {
    let (bodies, room) = room(LIMIT, BUDGET);
    let too_large = Error::BodyTooLarge { limit: LIMIT as u64 };
    let (_sender, mut pieces) = body(LIMIT + 1);
    assert_eq!(read_body(&mut pieces, &room, None).await.unwrap_err(), too_large);
    let (sender, mut pieces) = body(0);
    trickle(sender, LIMIT / 2 + 1, Duration::ZERO, 2);
    assert_eq!(read_body(&mut pieces, &room, None).await.unwrap_err(), too_large);
    assert_eq!(bodies.held(), 0);
}
