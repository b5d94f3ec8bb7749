//! Links that are used once.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

const NOW: u64 = MORNING_MS + 999;

/// A member without a password, whose address nobody has checked.
fn unverified(control: &Control, n: u8, tenant: u8, email: &str) {
    let person = NewPerson { password_hash: None, verified: false, ..new_person(n, email) };
    let new = NewMember { person, ..new_member(n, tenant, email) };
    wait(control.add_member(new, Records::none())).unwrap().unwrap();
}

fn create(control: &Control, link: Link) {
    assert_eq!(wait(control.create_link(link, None, vec![])), Ok(Some(())));
}

fn account(control: &Control, email: &str) -> Option<(PersonId, bool, Option<String>)> {
    let found = wait(control.person_by_email(email.into())).unwrap();
    found.map(|(person, hash)| (person.id, person.verified, hash))
}

fn hashed(hash: &str) -> Option<String> {
    Some(hash.to_owned())
}

pub fn a_link_is_found_by_its_secret_until_it_is_over(control: &Control) {
    furnish(control);
    unverified(control, 1, 1, "a@example.com");
    let links =
        [new_link(1, reset(1)), new_link(2, claim(1, 1)), new_link(3, invitation(1, "B@example.com"))];
    for link in &links {
        create(control, link.clone());
    }
    for (n, link) in (1..).zip(links) {
        assert_eq!(wait(control.link(digest(n), NOW)), Ok(Some(link)));
        assert_eq!(wait(control.link(digest(n), NOW + 1)), Ok(None));
    }
    assert_eq!(wait(control.link(digest(4), NOW)), Ok(None));
    // Neither for a person nor for a tenant that does not exist.
    for purpose in [reset(9), claim(1, 9), invitation(9, "b@example.com")] {
        assert_eq!(wait(control.create_link(new_link(5, purpose), None, vec![])), Ok(None));
    }
    // Those that are over go when another is made.
    let later = Link { created_at_ms: NOW + 1, expires_at_ms: NOW + 9, ..new_link(6, reset(1)) };
    create(control, later);
    assert_eq!(wait(control.export()).unwrap().links.len(), 1);
}

pub fn a_link_and_its_records_are_made_together_or_not_at_all(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    unverified(control, 1, 1, "a@example.com");
    let records = || vec![(tenant_id(1), record(1)), (tenant_id(2), record(2))];
    let before = wait(control.count_records()).unwrap();
    for purpose in [reset(9), claim(1, 9), invitation(9, "b@example.com")] {
        assert_eq!(wait(control.create_link(new_link(5, purpose), None, records())), Ok(None));
    }
    assert_eq!(wait(control.count_records()), Ok(before));
    // A link of a person tells every organisation of the person, each in its own chain.
    assert_eq!(wait(control.create_link(new_link(1, reset(1)), None, records())), Ok(Some(())));
    let last = |n| wait(control.pending_records(tenant_id(n), 99)).unwrap().pop().map(|record| record.id);
    assert_eq!((last(1), last(2)), (Some(record(1).id), Some(record(2).id)));
    assert_eq!(wait(control.count_records()), Ok(before + 2));
    // Records that cannot be kept keep the link from being made.
    assert!(wait(control.create_link(new_link(2, reset(1)), None, records())).is_err());
    let works = |n| wait(control.link(digest(n), NOW)).unwrap().is_some();
    assert_eq!((works(1), works(2)), (true, false));
}

pub fn a_newer_link_takes_the_place_of_an_older_one_of_its_kind(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    unverified(control, 1, 1, "a@example.com");
    unverified(control, 2, 1, "b@example.com");
    for (n, purpose) in [
        (1, reset(1)),
        (2, claim(1, 1)),
        (3, reset(2)),
        (4, invitation(1, "c@example.com")),
        (5, invitation(2, "c@example.com")),
        (6, invitation(1, "d@example.com")),
    ] {
        create(control, new_link(n, purpose));
    }
    create(control, new_link(11, reset(1)));
    create(control, new_link(14, invitation(1, "C@Example.com")));
    let works = |n| wait(control.link(digest(n), NOW)).unwrap().is_some();
    assert_eq!([1, 2, 3, 4, 5, 6, 11, 14].map(works), [false, true, true, false, true, true, true, true]);
    let invited = wait(control.invitations(tenant_id(1), NOW, 9)).unwrap();
    assert_eq!(invited.iter().map(|link| link.id).collect::<Vec<_>>(), [id(6), id(14)]);
    assert_eq!(wait(control.invitations(tenant_id(1), NOW + 1, 9)), Ok(vec![]));
}

/// Mails a link to a new password of the first person, with this secret.
fn mail_reset(control: &Control, n: u8) {
    let link = Link { digest: None, ..new_link(n, reset(1)) };
    let notice = NewNotice { key: link.notice_key(), ..new_notice(1, 1, 80) };
    assert_eq!(wait(control.create_link(link.clone(), Some(notice), vec![])), Ok(Some(())));
    let due = wait(control.due_notices(MORNING_MS, 99)).unwrap();
    let notice = due.into_iter().find(|notice| notice.key == link.notice_key()).unwrap();
    assert!(wait(control.claim_notice(notice.id, MORNING_MS, NOW, Some(digest(n)))).unwrap());
}

pub fn the_last_three_links_to_a_new_password_work_until_one_is_used(control: &Control) {
    furnish(control);
    unverified(control, 1, 1, "a@example.com");
    unverified(control, 2, 1, "b@example.com");
    create(control, new_link(9, reset(2)));
    for n in 1..=5 {
        mail_reset(control, n);
    }
    let works = |n| wait(control.link(digest(n), NOW)).unwrap().is_some();
    assert_eq!([1, 2, 3, 4, 5, 9].map(works), [false, false, true, true, true, true]);
    let used = wait(control.reset_password(digest(4), NOW, "h".into(), PersonRecords::none())).unwrap();
    assert_eq!(used.map(|person| person.id), Some(person_id(1)));
    assert_eq!([3, 4, 5, 9].map(works), [false, false, false, true]);
    // One that the host makes is the only one.
    mail_reset(control, 6);
    create(control, new_link(7, reset(1)));
    assert_eq!([6, 7].map(works), [false, true]);
}

pub fn a_claim_sets_address_and_password_once(control: &Control) {
    furnish(control);
    unverified(control, 1, 1, "owner@localhost");
    create(control, new_link(1, claim(1, 1)));
    create(control, new_link(2, reset(1)));
    wait(control.create_session(new_session(1, 1, u64::MAX), None)).unwrap();
    let has_claim = |now_ms| wait(control.has_claim(person_id(1), now_ms)).unwrap();
    assert_eq!((has_claim(NOW), has_claim(NOW + 1)), (true, false));
    let owner = |email: &str| Claimed { email: email.into(), password_hash: "h1".into() };
    let claim = |n, now_ms| {
        wait(control.claim(digest(n), now_ms, owner("Me@Example.com"), Records::of(vec![record(1)])))
    };
    // Over, unknown, or for something else.
    assert_eq!((claim(1, NOW + 1), claim(9, NOW), claim(2, NOW)), (Ok(None), Ok(None), Ok(None)));
    assert!(wait(control.link(digest(2), NOW)).unwrap().is_some());
    assert_eq!(wait(control.count_records()), Ok(0));
    let person = claim(1, NOW).unwrap().unwrap();
    assert_eq!((person.id, person.email.as_str(), person.verified), (person_id(1), "Me@Example.com", true));
    assert_eq!(claim(1, NOW), Ok(None));
    assert!(!has_claim(NOW));
    assert_eq!(account(control, "me@example.com"), Some((person_id(1), true, hashed("h1"))));
    assert_eq!(account(control, "owner@localhost"), None);
    assert_eq!(wait(control.session::<Person>(digest(1), NOW)), Ok(None));
    assert_eq!(wait(control.count_records()), Ok(1));
}

pub fn a_claim_with_an_address_that_somebody_has_changes_nothing(control: &Control) {
    furnish(control);
    unverified(control, 1, 1, "owner@localhost");
    wait(control.add_member(new_member(2, 1, "a@example.com"), Records::none())).unwrap();
    create(control, new_link(1, claim(1, 1)));
    let claim = |email: &str| {
        let owner = Claimed { email: email.into(), password_hash: "h1".into() };
        wait(control.claim(digest(1), NOW, owner, Records::of(vec![record(1)])))
    };
    assert_eq!(claim("A@example.com"), Err(ChangeError::AlreadyExists));
    assert_eq!(account(control, "owner@localhost"), Some((person_id(1), false, None)));
    // The same address in another case is one's own.
    assert!(claim("Owner@localhost").unwrap().is_some());
}

pub fn a_reset_sets_the_password_ends_all_sessions_and_leaves_the_authenticator(control: &Control) {
    furnish(control);
    unverified(control, 1, 1, "a@example.com");
    wait(control.offer_authenticator(new_authenticator(1))).unwrap();
    wait(control.confirm_authenticator(
        person_id(1),
        vec![1; 20],
        7,
        vec![digest(1)],
        None,
        PersonRecords::none(),
    ))
    .unwrap();
    for n in [1, 2] {
        wait(control.create_session(new_session(n, 1, u64::MAX), None)).unwrap();
    }
    create(control, new_link(1, reset(1)));
    let reset = |n, now_ms| {
        wait(control.reset_password(digest(n), now_ms, "h2".into(), PersonRecords::none())).unwrap()
    };
    assert_eq!((reset(1, NOW + 1), reset(2, NOW)), (None, None));
    assert_eq!(wait(control.sessions::<Person>(person_id(1), NOW)).unwrap().len(), 2);
    assert_eq!(reset(1, NOW).map(|person| person.id), Some(person_id(1)));
    assert_eq!(reset(1, NOW), None);
    assert_eq!(account(control, "a@example.com"), Some((person_id(1), true, hashed("h2"))));
    assert_eq!(wait(control.sessions::<Person>(person_id(1), NOW)), Ok(vec![]));
    assert!(wait(control.authenticator(person_id(1))).unwrap().unwrap().is_confirmed());
    assert_eq!(wait(control.recovery_codes_left(person_id(1))), Ok(1));
}

pub fn a_mailed_link_has_the_secret_that_its_mail_left_with(control: &Control) {
    furnish(control);
    unverified(control, 1, 1, "a@example.com");
    let link = Link { digest: None, ..new_link(1, reset(1)) };
    let notice = NewNotice { key: "of the link".into(), ..new_notice(1, 1, 80) };
    assert_eq!(wait(control.create_link(link.clone(), Some(notice), vec![])), Ok(Some(())));
    let notice = wait(control.due_notices(MORNING_MS, 9)).unwrap().remove(0);
    assert_eq!(notice.key, link.notice_key());
    let found = |n| wait(control.link(digest(n), NOW)).unwrap();
    let send = |at, n| wait(control.claim_notice(notice.id, at, at + 10, Some(digest(n)))).unwrap();
    assert_eq!(found(1), None);
    assert!(send(MORNING_MS, 1));
    assert_eq!(found(1), Some(link.clone()));
    // It is sent again: the first mail is worth nothing.
    assert!(send(MORNING_MS + 10, 2));
    assert_eq!((found(1), found(2)), (None, Some(link)));
    let reset = |n| {
        wait(control.reset_password(digest(n), NOW, "h".into(), PersonRecords::none())).unwrap().is_some()
    };
    assert_eq!((reset(1), reset(2), reset(2)), (false, true, false));
    // A secret of any other notice opens nothing.
    wait(control.enqueue_notice(new_notice(1, 1, 100))).unwrap();
    let other = wait(control.due_notices(MORNING_MS, 9)).unwrap().remove(0);
    wait(control.claim_notice(other.id, MORNING_MS, NOW, Some(digest(3)))).unwrap();
    assert_eq!(found(3), None);
}

fn accept(control: &Control, n: u8, guest: Guest) -> Result<Option<Member>, ChangeError> {
    wait(control.accept_invitation(digest(n), NOW, guest, Records::of(vec![record(n)])))
}

fn guest(n: u8) -> Guest {
    Guest::New { id: person_id(n), password_hash: format!("h{n}") }
}

pub fn an_invitation_makes_an_account_for_an_address_that_has_none(control: &Control) {
    furnish(control);
    create(control, new_link(1, invitation(1, "New@Example.com")));
    // Nobody who has an account has this address.
    wait(control.add_member(new_member(2, 1, "b@example.com"), Records::none())).unwrap();
    assert_eq!(accept(control, 1, Guest::Known(person_id(2))), Err(ChangeError::AlreadyExists));
    let member = accept(control, 1, guest(5)).unwrap().unwrap();
    // Whoever had the link saw it on a page: that says nothing about the address.
    assert_eq!(account(control, "new@example.com"), Some((person_id(5), false, hashed("h5"))));
    let Purpose::Invitation(invited) = invitation(1, "New@Example.com") else { unreachable!() };
    let Membership { role, grants, ends_at_ms, .. } = member.membership.clone();
    assert_eq!((role, grants, ends_at_ms), (invited.role, invited.grants, invited.ends_at_ms));
    assert_eq!(wait(control.member(tenant_id(1), person_id(5))), Ok(Some(member)));
    assert_eq!(accept(control, 1, guest(6)), Ok(None));
    assert_eq!(wait(control.count_records()), Ok(1));
}

pub fn an_invitation_that_was_mailed_shows_that_the_address_is_theirs(control: &Control) {
    furnish(control);
    let link = Link { digest: None, ..new_link(1, invitation(1, "new@example.com")) };
    wait(control.create_link(link, Some(new_notice(1, 1, 80)), vec![])).unwrap();
    let notice = wait(control.due_notices(MORNING_MS, 9)).unwrap().remove(0);
    assert!(wait(control.claim_notice(notice.id, MORNING_MS, MORNING_MS + 10, Some(digest(1)))).unwrap());
    accept(control, 1, guest(5)).unwrap().unwrap();
    assert_eq!(account(control, "new@example.com"), Some((person_id(5), true, hashed("h5"))));
}

pub fn an_invitation_to_somebody_with_an_account_is_accepted_by_that_person_alone(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (n, email) in [(1, "a@example.com"), (2, "b@example.com")] {
        wait(control.add_member(new_member(n, 1, email), Records::none())).unwrap();
    }
    create(control, new_link(1, invitation(2, "A@example.com")));
    create(control, new_link(2, invitation(1, "b@example.com")));
    // Neither somebody else, nor whoever holds the link without being signed in: that would set a password.
    for wrong in [Guest::Known(person_id(2)), guest(5)] {
        assert_eq!(accept(control, 1, wrong), Err(ChangeError::AlreadyExists));
    }
    assert_eq!(account(control, "a@example.com"), Some((person_id(1), true, hashed("$argon2id$1"))));
    let member = accept(control, 1, Guest::Known(person_id(1))).unwrap().unwrap();
    assert_eq!((member.person.id, member.membership.tenant_id), (person_id(1), tenant_id(2)));
    assert_eq!(wait(control.memberships(person_id(1))).unwrap().len(), 2);
    // Who is a member already stays what they are.
    assert_eq!(accept(control, 2, Guest::Known(person_id(2))), Err(ChangeError::AlreadyExists));
}

pub fn an_account_that_was_never_shown_to_have_its_address_joins_no_second_tenant(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    unverified(control, 1, 1, "a@example.com");
    create(control, new_link(1, invitation(2, "a@example.com")));
    assert_eq!(accept(control, 1, Guest::Known(person_id(1))), Err(ChangeError::AlreadyExists));
    create(control, new_link(2, reset(1)));
    wait(control.reset_password(digest(2), NOW, "h".into(), PersonRecords::none())).unwrap();
    assert!(accept(control, 1, Guest::Known(person_id(1))).unwrap().is_some());
}

pub fn an_invitation_that_was_withdrawn_opens_nothing(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    create(control, new_link(1, invitation(1, "a@example.com")));
    let withdraw = |tenant, role| {
        wait(control.withdraw_invitation(tenant_id(tenant), id(1), vec![role], vec![record(1)])).unwrap()
    };
    assert_eq!(withdraw(2, Role::Auditor), Invited::Missing);
    assert_eq!(withdraw(1, Role::Developer), Invited::Refused, "it is for an auditor");
    assert_eq!(withdraw(1, Role::Auditor), Invited::Done);
    assert_eq!(withdraw(1, Role::Auditor), Invited::Missing);
    assert_eq!(accept(control, 1, guest(5)), Ok(None));
    assert_eq!(wait(control.count_records()), Ok(1));
}

pub fn an_invitation_is_replaced_by_those_alone_who_may_give_its_role(control: &Control) {
    furnish(control);
    let invite = |n: u8, tenant, email: &str, roles: &[Role]| {
        let link = new_link(n, invitation(tenant, email));
        let tell = move |before: Option<&Link>, after: &Link| {
            assert_eq!(after.id, id(n));
            // One record for the new one, and one for that which it replaces.
            before.into_iter().map(|_| record(n + 100)).chain([record(n)]).collect()
        };
        wait(control.invite(link, Some(new_notice(1, 1, n)), roles.to_vec(), 9, Records::told_by(tell)))
            .unwrap()
    };
    let links = || -> Vec<_> {
        let known = wait(control.invitations(tenant_id(1), MORNING_MS, 9)).unwrap();
        known.iter().map(|link| link.id).collect()
    };
    let count = || wait(control.count_records()).unwrap();
    assert_eq!(invite(1, 1, "a@example.com", &[]), Invited::Done);
    assert_eq!((links(), count()), (vec![id(1)], 1));
    assert_eq!(invite(2, 1, "A@example.com", &[Role::Developer]), Invited::Refused);
    assert_eq!((links(), count()), (vec![id(1)], 1));
    assert_eq!(invite(2, 1, "A@example.com", &[Role::Developer, Role::Auditor]), Invited::Done);
    assert_eq!((links(), count()), (vec![id(2)], 3));
    assert_eq!(invite(3, 1, "b@example.com", &[]), Invited::Done);
    assert_eq!((links(), count()), (vec![id(2), id(3)], 4));
    assert_eq!(invite(4, 9, "a@example.com", &[]), Invited::Missing);
}

/// An invitation of tenant 1 for this role, sent by this person.
fn sent(n: u8, by: u8, role: Role) -> Link {
    let Purpose::Invitation(sent) = invitation(1, &format!("guest{n}@example.com")) else { unreachable!() };
    new_link(n, Purpose::Invitation(Invitation { role, invited_by: Some(person_id(by)), ..sent }))
}

fn sender(control: &Control, n: u8, role: Role, ends_at_ms: Option<u64>) {
    let new = NewMember { role, ends_at_ms, ..new_member(n, 1, &format!("sender{n}@example.com")) };
    wait(control.add_member(new, Records::none())).unwrap().unwrap();
}

fn open(control: &Control, now_ms: u64) -> Vec<u8> {
    let open = wait(control.invitations(tenant_id(1), now_ms, 99)).unwrap();
    (1..=20).filter(|n| open.iter().any(|link| link.id == id(*n))).collect()
}

pub fn an_invitation_opens_nothing_once_the_membership_of_its_sender_has_ended(control: &Control) {
    furnish(control);
    sender(control, 1, Role::Owner, None);
    sender(control, 2, Role::Admin, Some(MORNING_MS + 500));
    create(control, sent(1, 1, Role::Developer));
    create(control, sent(2, 2, Role::Developer));
    let found = |n, now_ms| wait(control.link(digest(n), now_ms)).unwrap().is_some();
    assert_eq!((found(2, MORNING_MS + 499), found(2, MORNING_MS + 500)), (true, false));
    assert_eq!((open(control, MORNING_MS + 499), open(control, MORNING_MS + 500)), (vec![1, 2], vec![1]));
    assert_eq!(accept(control, 2, guest(5)), Ok(None), "it is over by now");
    // Nobody has to withdraw it before its address is invited by somebody else.
    let again = Link { created_at_ms: NOW, expires_at_ms: NOW + 9, ..sent(3, 1, Role::Developer) };
    let Purpose::Invitation(invitation) = again.purpose else { unreachable!() };
    let email = "guest2@example.com".to_owned();
    let again = Link { purpose: Purpose::Invitation(Invitation { email, ..invitation }), ..again };
    let made = wait(control.invite(again, Some(new_notice(1, 1, 1)), vec![], 9, Records::none()));
    assert_eq!(made, Ok(Invited::Done));
    // A membership that begins again brings nothing back.
    create(control, sent(4, 2, Role::Developer));
    let change = MemberChange { ends_at_ms: Some(None), now_ms: MORNING_MS + 500, ..MemberChange::default() };
    wait(control.update_member(tenant_id(1), person_id(2), change, Records::none())).unwrap().unwrap();
    assert_eq!(open(control, MORNING_MS), [1, 3]);
    assert!(accept(control, 1, guest(6)).unwrap().is_some());
}

pub fn invitations_go_with_the_right_of_their_sender_to_send_them(control: &Control) {
    furnish(control);
    sender(control, 1, Role::Owner, None);
    sender(control, 2, Role::Owner, None);
    let all = [Role::Owner, Role::Admin, Role::Auditor];
    for (n, role) in (1..).zip(all) {
        create(control, sent(n, 2, role));
        create(control, sent(n + 10, 1, role));
    }
    let update = |change: MemberChange, expected: &[u8]| {
        let expected: Vec<_> = expected.iter().map(|n| id(*n)).collect();
        let tell = move |before: Option<&Updated>, after: &Updated| {
            assert_eq!((before.unwrap().withdrawn.len(), &after.withdrawn), (0, &expected));
            vec![]
        };
        let change = MemberChange { now_ms: MORNING_MS, ..change };
        let made = control.update_member(tenant_id(1), person_id(2), change, Records::told_by(tell));
        assert!(matches!(wait(made), Ok(Some(MemberChanged::Done(_)))));
    };
    let to = |role| MemberChange { role: Some(role), ..MemberChange::default() };
    update(MemberChange { grants: Some(Grants::default()), ..MemberChange::default() }, &[]);
    update(to(Role::Admin), &[1]);
    assert_eq!(open(control, MORNING_MS), [2, 3, 11, 12, 13]);
    update(to(Role::Developer), &[2, 3]);
    assert_eq!(open(control, MORNING_MS), [11, 12, 13], "those of others stay");
    // In the transaction it is looked at again whether the sender may send it.
    let invite = |n, by, role| {
        let notice = new_notice(1, 1, n);
        wait(control.invite(sent(n, by, role), Some(notice), vec![], 99, Records::none())).unwrap()
    };
    assert_eq!(invite(4, 2, Role::Auditor), Invited::Refused);
    update(to(Role::Admin), &[]);
    assert_eq!((invite(4, 2, Role::Auditor), invite(5, 2, Role::Owner)), (Invited::Done, Invited::Refused));
    update(MemberChange { ends_at_ms: Some(Some(MORNING_MS)), ..MemberChange::default() }, &[4]);
    assert_eq!(
        (invite(6, 2, Role::Auditor), invite(7, 9, Role::Auditor)),
        (Invited::Refused, Invited::Refused)
    );
    assert_eq!(open(control, MORNING_MS), [11, 12, 13]);
}

pub fn of_many_that_use_a_link_at_once_one_has_used_it(control: &Control) {
    furnish(control);
    unverified(control, 1, 1, "a@example.com");
    create(control, new_link(1, reset(1)));
    let resets: Vec<_> = (0..8)
        .map(|n| control.reset_password(digest(1), NOW, format!("h{n}"), PersonRecords::none()))
        .collect();
    let used = resets.into_iter().map(|reset| wait(reset).unwrap()).filter(Option::is_some).count();
    assert_eq!(used, 1);
}

pub fn a_tenant_has_so_many_open_invitations_and_one_for_an_address(control: &Control) {
    furnish(control);
    let invite = |n: u8, email: &str, created_at_ms: u64| {
        let made = new_link(n, invitation(1, email));
        let link = Link { created_at_ms, expires_at_ms: created_at_ms + 1000, ..made };
        let all = Role::ALL.to_vec();
        wait(control.invite(link, Some(new_notice(1, 1, n)), all, 2, Records::of(vec![record(n)]))).unwrap()
    };
    let open = |limit| wait(control.invitations(tenant_id(1), MORNING_MS, limit)).unwrap().len();
    assert_eq!(invite(1, "a@example.com", MORNING_MS), Invited::Done);
    assert_eq!(invite(2, "b@example.com", MORNING_MS), Invited::Done);
    assert_eq!(invite(3, "c@example.com", MORNING_MS), Invited::TooMany);
    assert_eq!((open(9), open(1), wait(control.count_records())), (2, 1, Ok(2)));
    // In place of one that is open there is room, and once they are over.
    assert_eq!(invite(4, "A@example.com", MORNING_MS), Invited::Done);
    assert_eq!(open(9), 2);
    assert_eq!(invite(5, "c@example.com", MORNING_MS + 1000), Invited::Done);
}

pub fn a_new_password_and_the_records_of_it_are_one_change(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for tenant in [1, 2] {
        member(control, tenant);
    }
    let ended = MemberChange { ends_at_ms: Some(Some(1)), now_ms: NOW, ..MemberChange::default() };
    wait(control.update_member(tenant_id(2), person_id(1), ended, Records::none())).unwrap();
    let told = |n: u8| PersonRecords::told_by(NOW, move || record(n));
    create(control, new_link(1, reset(1)));
    assert!(wait(control.reset_password(digest(1), NOW, "h1".into(), told(1))).unwrap().is_some());
    assert!(wait(control.reset_password(digest(1), NOW, "h2".into(), told(2))).unwrap().is_none());
    let change = |from: &str, n| {
        wait(control.change_password(person_id(1), from.into(), "h3".into(), digest(9), told(n)))
    };
    assert_eq!((change("h2", 3), change("h1", 4)), (Ok(false), Ok(true)));
    assert_eq!(wait(control.remove_authenticator(person_id(1), told(5))), Ok(false));
    wait(control.offer_authenticator(new_authenticator(1))).unwrap();
    let confirm = |secret: u8, n| {
        wait(control.confirm_authenticator(person_id(1), vec![secret; 20], 7, vec![], None, told(n)))
    };
    assert_eq!((confirm(2, 6), confirm(1, 7)), (Ok(false), Ok(true)));
    assert_eq!(wait(control.replace_recovery_codes(person_id(1), vec![digest(1)], told(8))), Ok(true));
    // A record that cannot be kept, since its id is taken: then nothing has changed either.
    wait(control.remove_authenticator(person_id(1), told(8))).unwrap_err();
    assert!(wait(control.authenticator(person_id(1))).unwrap().is_some());
    assert_eq!(wait(control.remove_authenticator(person_id(1), told(9))), Ok(true));
    let kept = |tenant| {
        let records = wait(control.pending_records(tenant_id(tenant), 99)).unwrap();
        records.iter().map(|record| record.id).collect::<Vec<_>>()
    };
    assert_eq!(kept(1), [1, 4, 7, 8, 9].map(id));
    assert_eq!(kept(2), [], "that membership has ended");
}

fn member(control: &Control, tenant: u8) {
    let new = NewMember { role: Role::Developer, ..new_member(1, tenant, "a@example.com") };
    wait(control.add_member(new, Records::none())).unwrap().unwrap();
}
