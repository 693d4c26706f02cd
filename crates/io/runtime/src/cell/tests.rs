use super::*;

#[derive(Clone, Debug)]
struct Dated {
    value: u32,
    date: u32,
}

impl PartialEq for Dated {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

#[test]
fn an_equal_value_is_stored_and_wakes_nobody() {
    let cell = Cell::new(Dated { value: 1, date: 1 });
    let reader = cell.subscribe();
    assert!(!cell.publish(Dated { value: 1, date: 2 }));
    assert_eq!((cell.generation(), cell.load().date), (0, 2));
    assert!(!reader.has_changed().unwrap());
    assert!(cell.publish(Dated { value: 2, date: 3 }));
    assert_eq!((cell.generation(), cell.read().value), (1, 2));
    assert!(reader.has_changed().unwrap());
}

#[test]
fn update_changes_the_newest_value_in_place() {
    let cell = Cell::new((0, 0));
    assert!(cell.update(|pair| pair.0 = 1));
    assert!(cell.update(|pair| pair.1 = 2));
    assert!(!cell.update(|pair| pair.1 = 2));
    assert_eq!((*cell.load(), cell.generation()), ((1, 2), 2));
}

#[tokio::test]
async fn wait_for_sees_a_value_that_was_there_before_and_one_that_comes() {
    let cell = Arc::new(Cell::new(1));
    assert_eq!(*cell.wait_for(|v| *v == 1).await, 1);
    let waiter = tokio::spawn({
        let cell = Arc::clone(&cell);
        async move { *cell.wait_for(|v| *v >= 3).await }
    });
    for v in 2..=3 {
        cell.publish(v);
        tokio::task::yield_now().await;
    }
    assert_eq!(waiter.await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_saw_a_number_finds_at_least_that_value() {
    let cell = Arc::new(Cell::new(0_u64));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let cell = Arc::clone(&cell);
            tokio::spawn(async move {
                let mut generations = cell.subscribe();
                while *cell.load() < 2_000 {
                    let number = *generations.borrow_and_update();
                    assert!(*cell.load() >= number);
                    if *cell.load() < 2_000 {
                        generations.changed().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for v in 1..=2_000 {
        cell.publish(v);
    }
    for reader in readers {
        reader.await.unwrap();
    }
}
