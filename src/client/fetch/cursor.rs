//! Reads fields at the front of a frame that is still arriving.
//!
//! A read that lies behind what has arrived says how many bytes are needed; one that lies behind the frame's end is an
//! error of the peer. Nothing is consumed: a caller that got all its fields advances by [`Cursor::position`].

use uuid::Uuid;

use super::walker::FrameError;

/// The longest name that is read: Kafka's classic strings end there, whatever the encoding.
const NAME_BYTES_MAX: usize = i16::MAX as usize;

/// Why a field cannot be read now.
#[derive(Debug)]
pub(super) enum Stop {
    /// So many bytes, counted from the front, are needed.
    Short(usize),
    /// The frame is broken.
    Broken(FrameError),
}

/// A position in what has arrived of a frame's rest.
pub(super) struct Cursor<'a> {
    arrived: &'a [u8],
    frame_bytes_left: usize,
    position: usize,
}

impl<'a> Cursor<'a> {
    /// Over the front of a frame of which `frame_bytes_left` are not consumed.
    pub(super) fn new(front: &'a [u8], frame_bytes_left: usize) -> Cursor<'a> {
        Cursor { arrived: &front[..front.len().min(frame_bytes_left)], frame_bytes_left, position: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Bytes of the frame behind the position.
    pub(super) fn frame_bytes_behind(&self) -> usize {
        self.frame_bytes_left - self.position
    }

    fn take(&mut self, what: &'static str, bytes: usize) -> Result<&'a [u8], Stop> {
        let end = self.position.saturating_add(bytes);
        if end > self.frame_bytes_left {
            return Err(Stop::Broken(FrameError::Truncated { what }));
        }
        let field = self.arrived.get(self.position..end).ok_or(Stop::Short(end))?;
        self.position = end;
        Ok(field)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(what, N)?);
        Ok(bytes)
    }

    pub(super) fn skip(&mut self, what: &'static str, bytes: usize) -> Result<(), Stop> {
        self.take(what, bytes).map(|_| ())
    }

    pub(super) fn i16(&mut self, what: &'static str) -> Result<i16, Stop> {
        self.array(what).map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self, what: &'static str) -> Result<i32, Stop> {
        self.array(what).map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self, what: &'static str) -> Result<i64, Stop> {
        self.array(what).map(i64::from_be_bytes)
    }

    pub(super) fn uuid(&mut self, what: &'static str) -> Result<Uuid, Stop> {
        self.array(what).map(Uuid::from_bytes)
    }

    /// An unsigned varint of 32 bits.
    pub(super) fn unsigned(&mut self, what: &'static str) -> Result<u32, Stop> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(what)?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Stop::Broken(FrameError::Invalid { what, value: -1, rule: "is no varint of 32 bits" }))
    }

    /// The length of an array or of bytes, null as 0: an i32, or compact (length + 1).
    pub(super) fn length(&mut self, what: &'static str, compact: bool) -> Result<usize, Stop> {
        let length = if compact { i64::from(self.unsigned(what)?) - 1 } else { i64::from(self.i32(what)?) };
        match length {
            -1 => Ok(0),
            _ => usize::try_from(length)
                .map_err(|_| Stop::Broken(FrameError::Invalid { what, value: length, rule: "is negative" })),
        }
    }

    /// The length of an array whose elements take at least `element_bytes_min`.
    pub(super) fn count(
        &mut self,
        what: &'static str,
        compact: bool,
        element_bytes_min: usize,
    ) -> Result<usize, Stop> {
        let count = self.length(what, compact)?;
        if count > self.frame_bytes_behind() / element_bytes_min {
            return Err(invalid(what, count, "is more than the frame can hold"));
        }
        Ok(count)
    }

    /// The number of tagged fields of a flexible version (KIP-482).
    pub(super) fn tag_count(&mut self, flexible: bool) -> Result<u32, Stop> {
        if !flexible {
            return Ok(0);
        }
        let count = self.unsigned("tagged field count")?;
        if count as usize > self.frame_bytes_behind() / 2 {
            return Err(invalid("tagged field count", count as usize, "is more than the frame can hold"));
        }
        Ok(count)
    }

    /// A name.
    pub(super) fn string(&mut self, what: &'static str, compact: bool) -> Result<&'a str, Stop> {
        let length = if compact { i64::from(self.unsigned(what)?) - 1 } else { i64::from(self.i16(what)?) };
        let bytes = usize::try_from(length).ok().filter(|&bytes| bytes <= NAME_BYTES_MAX).ok_or(
            Stop::Broken(FrameError::Invalid { what, value: length, rule: "is no length of a name" }),
        )?;
        str::from_utf8(self.take(what, bytes)?).map_err(|_| invalid(what, bytes, "bytes long, is no UTF-8"))
    }
}

pub(super) fn invalid(what: &'static str, value: usize, rule: &'static str) -> Stop {
    Stop::Broken(FrameError::Invalid { what, value: value as i64, rule })
}
