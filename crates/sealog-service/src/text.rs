//! What a mail says.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub subject: String,
    pub body: String,
}
