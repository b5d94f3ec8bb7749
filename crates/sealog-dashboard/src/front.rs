//! The two sites that accounts sign in to: the dashboard of people and the console of operators. Gate, routes,
//! cookies and the sign-in form are one implementation; a site says here what is its own.

use sealog_service::sign_in::{Accounts, Kind};

use crate::assets::Assets;
use crate::cookies::{Cookies, Jar};
use crate::gate::Needs;
use crate::problem::Problem;
use crate::request::Asked;

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
    /// The accounts that sign in here. A session of another kind is not found, whatever cookie it is put into.
    type Kind: Kind<Who: std::fmt::Debug>;
    /// What a page is about, beside who asks for it.
    type Place: Default + std::fmt::Debug + Send + Sync;
    /// Beneath which all pages are.
    const BASE: &'static str;
    const WRONG_CODE: &'static str;

    fn accounts(&self) -> &Accounts<Self::Kind>;
    fn site(&self) -> &Site;

    /// Where a session continues that a password alone has begun. None for a whole one.
    fn next_step(who: &<Self::Kind as Kind>::Who) -> Option<&'static str>;

    /// Where a browser goes that has signed in and wants this page, if any.
    fn arrival(next: &str) -> String;

    /// Too many passwords, codes or links. The message does not reveal whether there is such an account.
    fn too_many() -> Problem;

    /// What the sign-in page says after this has happened elsewhere.
    fn notice_after(_: &str) -> Option<&'static str> {
        None
    }

    /// What a page needs beside a session: the last question before its form is read.
    fn enter(&self, _: Needs, _: &mut Asked<Self>) -> impl Future<Output = Result<(), Problem>> + Send {
        std::future::ready(Ok(()))
    }
}
