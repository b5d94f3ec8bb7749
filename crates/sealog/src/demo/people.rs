//! The people of the demo, and the passwords that they get at each start.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sealog_control::Role;
use sealog_service::Secret;
use sealog_service::people::account::{self, People};
use sealog_service::people::sign_in::{Accounts, Failed, Token, Visitor};
use sealog_service::records::system_chain::Wake;
use sealog_store::world::World;

use sealog_engine::Opened;

/// One for each role.
pub(super) const PEOPLE: [(&str, Role); 5] = [
    ("olivia@northwind.example", Role::Owner),
    ("adam@northwind.example", Role::Admin),
    ("dora@northwind.example", Role::Developer),
    ("priya@northwind.example", Role::PrivacyOfficer),
    ("ari@auditors.example", Role::Auditor),
];

/// Groups of characters in a password: 80 bits in all.
const GROUPS: usize = 4;
const GROUP: usize = 4;
/// Without those that look like others.
const CHARACTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// What somebody needs to sign in.
#[derive(Debug)]
pub(super) struct SignIn {
    pub email: &'static str,
    pub role: &'static str,
    pub password: Secret,
    pub link: String,
}

/// New passwords for everybody who is still there; sessions from before end. As everywhere, a link on the
/// host sets them, and the system chain tells of it.
pub(super) async fn renew(
    store: &Opened,
    world: &Arc<dyn World>,
    app_url: &str,
) -> Result<Vec<SignIn>, String> {
    let control = store.control();
    let people = People { wake: Wake::default() };
    let accounts = Accounts::new(people, Arc::clone(control), Arc::clone(world), Arc::default());
    let mut renewed = Vec::new();
    for (email, _) in PEOPLE {
        let link = account::make_reset_link(control, world, app_url, email).await;
        let Some(link) = link.map_err(|Failed(error)| error.to_string())? else { continue };
        let token = link.url.0.split_once('#').and_then(|(_, token)| Token::parse(token));
        let token = token.ok_or("a link without a token")?;
        let password = new_password(&**world);
        let visitor = Visitor { address: Ipv4Addr::LOCALHOST.into(), user_agent: None };
        let person = accounts.reset_password(&token, Secret(password.0.clone()), &visitor).await;
        let person = person.map_err(|error| format!("no new password for {email}: {error:?}"))?;
        let memberships = control.memberships(person.id).await.map_err(|error| error.to_string())?;
        let role = memberships.first().map_or("none", |membership| membership.role.as_str());
        // "@" is the only character of these addresses that a query cannot have as it is.
        let link = format!("{app_url}/sign-in?email={}", email.replace('@', "%40"));
        renewed.push(SignIn { email, role, password, link });
    }
    Ok(renewed)
}

pub(super) fn new_password(world: &dyn World) -> Secret {
    let mut random = [0; GROUPS * GROUP];
    world.fill_random(&mut random);
    let mut password = String::with_capacity(GROUPS * (GROUP + 1));
    for (at, byte) in random.iter().enumerate() {
        if at > 0 && at % GROUP == 0 {
            password.push('-');
        }
        password.push(char::from(CHARACTERS[usize::from(byte % 32)]));
    }
    Secret(password)
}
