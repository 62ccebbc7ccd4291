//! Random verbs on a pair of queue pairs, compared with a model: two ordered queues and flat memory
//! per side. After each command the network comes to rest; then completions, events, states and
//! every byte of memory must be those of the model. Cases that fail shrink to a few commands, which
//! become a trace test.

mod reference;
mod rig;

use proptest::prelude::*;
use reference::{BUFFER, Command, Key, Model, Op, Side, Transport};
use rig::Rig;

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::A), Just(Side::B)]
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        20 => Just(Key::Main),
        3 => Just(Key::Window),
        1 => Just(Key::Extra),
        1 => Just(Key::Unknown),
    ]
}

/// Mostly within a packet or two, at times beyond the end.
fn len() -> impl Strategy<Value = u32> {
    prop_oneof![
        1 => Just(0),
        4 => 1..40u32,
        3 => 250..260u32,
        2 => 500..800u32,
    ]
}

/// Mostly enough.
fn room() -> impl Strategy<Value = u32> {
    prop_oneof![1 => len(), 4 => Just(BUFFER)]
}

fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![25 => 0..1200u32, 1 => 1900..2100u32]
}

fn op(transport: Transport) -> BoxedStrategy<Op> {
    let imm = || proptest::option::weighted(0.4, any::<[u8; 4]>());
    let send = (len(), imm()).prop_map(|(len, imm)| Op::Send { len, imm });
    let write = (len(), imm(), key(), offset()).prop_map(|(len, imm, key, at)| Op::Write {
        len,
        imm,
        key,
        at,
    });
    if transport == Transport::Uc {
        return prop_oneof![send, write].boxed();
    }
    let word = || (0..40u32).prop_map(|n| if n > 0 { n * 8 } else { 4 });
    prop_oneof![
        4 => send,
        1 => len().prop_map(|len| Op::SendInv { len }),
        4 => write,
        3 => (len(), key(), offset()).prop_map(|(len, key, at)| Op::Read { len, key, at }),
        1 => (key(), word(), 0..3u64).prop_map(|(key, at, add)| Op::FetchAdd { key, at, add }),
        1 => (key(), word(), 0..2u64, 0..3u64)
            .prop_map(|(key, at, compare, swap)| Op::CompareSwap { key, at, compare, swap }),
        1 => (key(), word()).prop_map(|(key, at)| Op::AtomicWrite { key, at }),
        1 => (len(), key(), offset()).prop_map(|(len, key, at)| Op::Flush { len, key, at }),
        1 => (0..1300u32, 1..900u32, any::<bool>())
            .prop_map(|(at, len, writable)| Op::Bind { at, len, writable }),
        1 => Just(Op::LocalInv),
    ]
    .boxed()
}

fn command(transport: Transport) -> impl Strategy<Value = Command> {
    prop_oneof![
        14 => (side(), op(transport), any::<bool>(), any::<bool>(), 0..40u8).prop_map(
            |(side, op, signaled, solicited, luck)| Command::Send {
                side,
                op,
                signaled,
                solicited,
                bad_entry: luck == 0,
            }
        ),
        12 => (side(), room(), 0..25u8).prop_map(|(side, len, luck)| Command::Receive {
            side,
            len,
            bad_entry: luck == 0,
        }),
        1 => side().prop_map(|side| Command::ToError { side }),
        1 => side().prop_map(|side| Command::ToReset { side }),
        2 => side().prop_map(|side| Command::Stop { side }),
        2 => side().prop_map(|side| Command::Resume { side }),
        3 => Just(Command::Reconnect { half: false }),
        1 => Just(Command::Reconnect { half: true }),
        1 => side().prop_map(|side| Command::DeregisterExtra { side }),
    ]
}

fn check(transport: Transport, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut rig = Rig::new(transport);
    let mut model = Model::new(transport);
    for (step, command) in commands.iter().enumerate() {
        if model.is_vague(command) {
            continue;
        }
        let expected = model.apply(command);
        let found = rig.apply(command);
        prop_assert_eq!(
            &found.accepted,
            &expected.accepted,
            "step {}: {:?}",
            step,
            command
        );
        for side in Side::BOTH {
            let (found, expected) = (&found.of[side.index()], &expected.of[side.index()]);
            prop_assert_eq!(found, expected, "step {}: {:?}, {:?}", step, command, side);
        }
        for side in Side::BOTH {
            rig.memory(side, |found| {
                let expected = model.memory(side);
                let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
                prop_assert_eq!(
                    wrong,
                    None,
                    "step {}: {:?}, memory of {:?}",
                    step,
                    command,
                    side
                );
                Ok(())
            })?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn a_reliable_connection_does_what_the_model_does(
        commands in proptest::collection::vec(command(Transport::Rc), 1..60),
    ) {
        check(Transport::Rc, &commands)?;
    }

    #[test]
    fn a_shared_receive_queue_does_what_the_model_does(
        commands in proptest::collection::vec(command(Transport::RcWithSrq), 1..60),
    ) {
        check(Transport::RcWithSrq, &commands)?;
    }

    #[test]
    fn an_unreliable_connection_does_what_the_model_does(
        commands in proptest::collection::vec(command(Transport::Uc), 1..60),
    ) {
        check(Transport::Uc, &commands)?;
    }
}
