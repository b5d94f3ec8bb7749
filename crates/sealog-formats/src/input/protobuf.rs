//! As much of the wire format of Protocol Buffers as log records need: tags, varints, fixed numbers, and
//! pieces with a length.

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The message is cut off, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The fields of a message, in the order in which they stand.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // Nothing that follows can be told apart.
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Malformed)?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| Malformed)?)),
            _ => return Err(Malformed),
        };
        match tag >> 3 {
            0 => Err(Malformed),
            number => Ok((number, value)),
        }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            // The tenth byte has room for one bit.
            if shift == 63 && *byte > 1 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_what_is_cut_off_is_noticed() {
        let message =
            [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 2, 0, 0, 0];
        let fields: Vec<_> = Fields(&message).map(Result::unwrap).collect();
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed64(1)),
            (4, Value::Fixed32(2)),
        ];
        assert_eq!(fields, expected);
        for length in 1..message.len() {
            let whole = [3, 7, 16].contains(&length);
            assert_eq!(Fields(&message[..length]).all(|field| field.is_ok()), whole, "{length}");
        }
        for bad in [
            &[0x00, 0x00][..],
            &[0x0b],
            &[0x0f],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ] {
            assert!(Fields(bad).any(|field| field.is_err()), "{bad:?}");
        }
    }
}
