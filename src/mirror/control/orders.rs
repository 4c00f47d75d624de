//! The owner's side of the commands: none is lost, however busy the control task is.
//!
//! The owner must not wait for its control task, which may wait for it. What finds no room waits here: restarts of one
//! partition are one, so that it is bounded by the number of partitions.

use std::collections::BTreeMap;

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::ControlCommand;
use crate::mirror::state::TopicPartition;
use crate::mirror::state::records::Position;

/// The owner's commands to its control task.
#[derive(Debug)]
pub struct Orders {
    commands: Sender<ControlCommand>,
    restarts: BTreeMap<TopicPartition, Option<Position>>,
    discover: bool,
}

impl Orders {
    pub(super) fn new(commands: Sender<ControlCommand>) -> Orders {
        Orders { commands, restarts: BTreeMap::new(), discover: false }
    }

    /// Wants a [`ControlCommand::Restart`].
    pub fn restart(&mut self, partition: TopicPartition, position: Option<Position>) {
        self.restarts.insert(partition, position);
        self.hand_on();
    }

    /// Wants a [`ControlCommand::Discover`].
    pub fn discover(&mut self) {
        self.discover = true;
        self.hand_on();
    }

    /// Hands on what there is room for; when [`Orders::room`] ends.
    pub fn hand_on(&mut self) {
        while let Some((partition, position)) = self.restarts.pop_first() {
            let command = ControlCommand::Restart { partition: partition.clone(), position };
            if let Err(TrySendError::Full(_)) = self.commands.try_send(command) {
                self.restarts.insert(partition, position);
                return;
            }
        }
        if self.discover {
            self.discover =
                matches!(self.commands.try_send(ControlCommand::Discover), Err(TrySendError::Full(_)));
        }
    }

    /// Ends when something waits and there is room for it.
    pub async fn room(&self) {
        let waits = self.discover || !self.restarts.is_empty();
        if !waits || self.commands.reserve().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What waits belongs to a right to write that is gone.
    pub fn forget(&mut self) {
        (self.restarts, self.discover) = (BTreeMap::new(), false);
    }

    /// Says something, and waits for the room to say it. A task that has ended hears nothing.
    pub async fn tell(&self, command: ControlCommand) {
        let _ = self.commands.send(command).await;
    }

    /// The control task has ended.
    pub fn are_void(&self) -> bool {
        self.commands.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn restarts_wait_for_room_and_none_is_lost() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut orders = Orders::new(sender);
        for partition in [0, 1, 2, 3, 2] {
            orders.restart(TopicPartition::new("t", partition), None);
        }
        let mut told = Vec::new();
        loop {
            assert!(timeout(Duration::from_secs(1), orders.room()).await.is_err(), "full, or nothing waits");
            match receiver.try_recv() {
                Ok(ControlCommand::Restart { partition, .. }) => told.push(partition.partition),
                other => {
                    assert!(other.is_err(), "{other:?}");
                    break;
                }
            }
            if !orders.restarts.is_empty() {
                orders.room().await;
                orders.hand_on();
            }
        }
        assert_eq!(told, [0, 1, 2, 3]);
        drop(receiver);
        orders.restart(TopicPartition::new("t", 4), None);
        assert!(orders.are_void() && orders.restarts.is_empty(), "nobody is there to hear it");
    }
}
