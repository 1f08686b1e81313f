//! Images to feed programs with.
//!
//! One duty: a PNG file (W3C, *Portable Network Graphics*, third edition) with pixels made by rule: a
//! gradient under noise, stored without compression.

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
    let mut x = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut rows = Vec::new();
    for row in 0..side {
        rows.push(0);
        for column in 0..side {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            let noise = (x & 15) as u8;
            let shade = |part: u32| (part * 239 / side) as u8 + noise;
            rows.extend([shade(row), shade(column), shade((row + column) / 2)]);
        }
    }
    rows
}

/// A zlib stream (RFC 1950) of stored blocks (RFC 1951, section 3.2.4).
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = data.chunks(0xffff).count();
    for (index, block) in data.chunks(0xffff).enumerate() {
        let length = block.len() as u16;
        stream.push(u8::from(index + 1 == blocks));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler32(data).to_be_bytes());
    stream
}

fn adler32(data: &[u8]) -> u32 {
    let (a, b) = data.iter().fold((1_u32, 0_u32), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let crc = crc32(&file[start..]);
    file.extend(crc.to_be_bytes());
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0_u32, |crc, &byte| {
        let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        (0..8).fold(crc ^ u32::from(byte), step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksums_are_the_standards() {
        // The check values that the algorithms' catalogues state.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"123456789"), 0x091e_01de);
    }

    #[test]
    fn an_image_has_its_chunks() {
        let file = png(40, 1);
        assert_eq!(&file[12..24], b"IHDR\0\0\0\x28\0\0\0\x28");
        assert_eq!(&file[file.len() - 8..], b"IEND\xae\x42\x60\x82");
        // One stored block: 40 rows of 1 + 3 * 40 bytes.
        assert_eq!(zlib(&pixels(40, 1)).len(), 2 + 5 + 40 * 121 + 4);
    }
}
