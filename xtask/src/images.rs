//! Images to feed programs with.
//!
//! One duty: a PNG file (W3C, *Portable Network Graphics*, third edition) with pixels made by rule: a
//! gradient under noise, stored without compression.

use fastrand::Rng;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::io::Write;

/// A square RGB image of 8 bits a channel; `side` is at most 20000 pixels, `seed` chooses the noise.
pub(crate) fn png(side: u32, seed: u32) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [side.to_be_bytes(), side.to_be_bytes()].concat();
    // 8 bits, RGB, the only compression and filter method, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &zlib(&pixels(side, seed)));
    chunk(&mut file, b"IEND", &[]);
    file
}

/// The rows, each after its filter type 0.
fn pixels(side: u32, seed: u32) -> Vec<u8> {
    let mut random = Rng::with_seed(u64::from(seed));
    let mut rows = Vec::new();
    for row in 0..side {
        rows.push(0);
        for column in 0..side {
            let noise = random.u8(..16);
            let shade = |part: u32| (part * 239 / side) as u8 + noise;
            rows.extend([shade(row), shade(column), shade((row + column) / 2)]);
        }
    }
    rows
}

/// A zlib stream of stored blocks.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
    // Writing to memory does not fail.
    let _ = encoder.write_all(data);
    encoder.finish().unwrap_or_default()
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let mut crc = Crc::new();
    crc.update(&file[start..]);
    file.extend(crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_its_chunks() {
        let file = png(40, 1);
        assert_eq!(&file[12..24], b"IHDR\0\0\0\x28\0\0\0\x28");
        assert_eq!(&file[file.len() - 8..], b"IEND\xae\x42\x60\x82");
        // Not compressed: 40 rows of 1 + 3 * 40 bytes, within the stream's and the block's frame.
        assert_eq!(zlib(&pixels(40, 1)).len(), 2 + 5 + 40 * 121 + 4);
    }
}
