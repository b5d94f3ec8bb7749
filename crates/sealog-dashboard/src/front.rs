//! The two sites that accounts sign in to: the dashboard of people and the console of operators. Gate,
//! routes, cookies and the sign-in form are one implementation; here is what a site has of its own.

use sealog_service::people::sign_in::{Accounts, Kind};

use crate::assets::Assets;
use crate::cookies::{Cookies, Jar};

/// What a site has, of whatever kind its accounts are.
pub struct Site {
    /// Where a browser reaches its pages.
    pub url: String,
    pub docs_url: String,
    pub cookies: Cookies,
    pub assets: Assets,
}

impl Site {
    pub(crate) fn new<F: Front>(jar: &'static Jar, url: &str, docs_url: &str) -> Site {
        Site {
            url: url.to_owned(),
            docs_url: docs_url.to_owned(),
            cookies: Cookies::new(jar, url),
            assets: Assets::new(F::BASE),
        }
    }
}

pub trait Front: Sized + Send + Sync + 'static {
    /// The accounts that sign in here. A session of another kind is not found, in whatever cookie it is.
    type Kind: Kind<Who: std::fmt::Debug>;
    /// What a page is about, beside who asks for it.
    type Place: Default + std::fmt::Debug + Send + Sync;
    /// Beneath which all pages are.
    const BASE: &'static str;

    fn accounts(&self) -> &Accounts<Self::Kind>;
    fn site(&self) -> &Site;
}
