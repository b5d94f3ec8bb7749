//! The epoch of a store, and the log that it is known to have.

use sealog_control::*;
use sealog_testing::*;

pub fn a_promotion_raises_the_epoch_above_everything_that_the_store_knows_of(control: &Control) {
    let epochs = || wait(control.epochs()).unwrap();
    assert_eq!((epochs(), epochs().superseded_by()), (Epochs::default(), None));
    assert_eq!(wait(control.raise_epoch()), Ok(1));
    assert_eq!(epochs(), Epochs { own: 1, seen: 0 });
    wait(control.see_epoch(7)).unwrap();
    assert_eq!(epochs().superseded_by(), Some(7));
    assert_eq!(wait(control.raise_epoch()), Ok(8));
    assert_eq!((epochs(), epochs().superseded_by()), (Epochs { own: 8, seen: 7 }, None));
}

pub fn an_epoch_that_a_peer_has_told_is_kept_and_never_lowered(control: &Control) {
    for (told, seen) in [(0, 0), (2, 2), (1, 2), (2, 2), (3, 3)] {
        assert_eq!(wait(control.see_epoch(told)), Ok(Epochs { own: 0, seen }));
    }
    assert_eq!(wait(control.epochs()).unwrap().superseded_by(), Some(3));
}

pub fn the_log_that_a_store_had_is_known_until_there_is_another(control: &Control) {
    assert_eq!(wait(control.known_log()), Ok(None));
    for (origin, size) in [("log", 4), ("log", 9), ("other", 3)] {
        let log = KnownLog { origin: origin.into(), vkey: format!("{origin}+00000000+AQ=="), size };
        wait(control.know_log(log.clone())).unwrap();
        assert_eq!(wait(control.known_log()), Ok(Some(log)));
    }
}
