//! The control task of a flow whose partitions a consumer group gives out: join, reign over what is ours, join anew after a
//! loss.
//!
//! It stands where the lease stands otherwise: a reign lasts as long as the membership, and ends at once when everything is
//! lost. Within a reign, partitions come and go; see `mirror::member`.

use super::ControlEvent;
use super::reign::Reign;
use super::task::{End, Flow, Mailbox, Outcome};
use super::waiting::{because, name, waiting};
use crate::client::Topics;
use crate::client::produce::Permit;
use crate::mirror::member::{Member, MemberSettings};
use tokio::time::sleep;

/// Joins and reigns until it is told to stop or cannot go on.
pub(super) async fn join_and_reign(flow: &Flow, settings: &MemberSettings, mailbox: &mut Mailbox) -> End {
    if let Some(end) = see_topics(flow, mailbox).await {
        return end;
    }
    let mut member = Member::join(&flow.seam, &flow.settings, settings, &flow.source, flow.events.clone());
    flow.tell(ControlEvent::Membership(member.watch())).await;
    let end = loop {
        let losses = match stand_by(flow, settings, &member, mailbox).await {
            Ok(losses) => losses,
            Err(end) => break end,
        };
        mailbox.forget();
        let mut reign =
            Reign::new(flow.clone(), Permit::always()).within(settings.group_id.clone(), member.watch());
        let outcome = tokio::select! {
            biased;
            reason = member.lost(losses) => Outcome::Lost(reason),
            end = reign.rule(mailbox) => Outcome::Ended(end),
        };
        reign.over();
        if let Some(end) = flow.after(outcome).await {
            break end;
        }
    };
    if mailbox.is_in_doubt() {
        member.leave_by_timeout().await;
    } else {
        member.leave().await;
    }
    end
}

/// A member says which topics it wants, so that it must have seen them.
async fn see_topics(flow: &Flow, mailbox: &mut Mailbox) -> Option<End> {
    let seen = async {
        let mut failures = 0;
        loop {
            match flow.source.refresh(Topics::All).await {
                Ok(_) => return None,
                Err(error) if error.is_retriable() => {
                    tracing::debug!(target: "kmirror::control", flow = %flow.name(), error = %error.chain(), "no topics");
                }
                Err(error) => return Some(End::Failed(error.chain())),
            }
            sleep(flow.source.settings().retry_backoff.delay(failures, flow.seam.random())).await;
            failures += 1;
        }
    };
    let source = name(&flow.source);
    let what = || format!("the topics of {source}{}", because(None, &[&flow.source]));
    tokio::select! {
        biased;
        () = mailbox.stop() => Some(End::Stopped),
        end = waiting(flow, what, seen) => end,
    }
}

/// Waits until we are a member; answers how often everything was lost before.
async fn stand_by(
    flow: &Flow,
    settings: &MemberSettings,
    member: &Member,
    mailbox: &mut Mailbox,
) -> Result<u64, End> {
    let (mut watch, look) = (member.watch(), member.watch());
    let joined = async {
        loop {
            let state = watch.look();
            if let Some(reason) = state.refused {
                return Err(End::Failed(reason));
            }
            if state.identity.is_some() {
                return Ok(state.losses);
            }
            watch.changed().await;
        }
    };
    let source = name(&flow.source);
    let what = || {
        let state = look.state();
        let why = because(state.trouble.or(state.lost), &[&flow.source]);
        format!("the other members of group {} on {source} to join{why}", settings.group_id)
    };
    tokio::select! {
        biased;
        () = mailbox.stop() => Err(End::Stopped),
        joined = waiting(flow, what, joined) => joined,
    }
}
