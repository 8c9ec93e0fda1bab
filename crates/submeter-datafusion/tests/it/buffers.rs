//! Arrow's pool.

use arrow_buffer::MemoryPool;
use datafusion::arrow::array::{Array, Int64Array};
use submeter_datafusion::GroupBuffers;

use crate::World;

#[test]
fn claimed_buffers_count_until_the_last_share() {
    let world = World::new();
    let acme = world.tenant("/acme", 4096);
    let buffers = GroupBuffers::new(&acme, world.memory);
    let array = Int64Array::from(vec![7; 100]);
    let data = array.to_data();
    data.buffers()[0].claim(&buffers);
    data.buffers()[0].claim(&buffers);
    assert_eq!((world.current(&acme), buffers.used()), (800, 800), "once, however often claimed");
    let slice = array.slice(10, 5);
    drop((array, data));
    assert_eq!(buffers.used(), 800);
    drop(slice);
    assert_eq!(buffers.used(), 0);
}

/// A reservation follows its buffer, and cannot be refused.
#[test]
fn a_reservation_follows_its_buffer() {
    let world = World::new();
    world.tree.root().set_limit(world.memory, Some(3000));
    let acme = world.tenant("/acme", 1000);
    let buffers = GroupBuffers::new(&acme, world.memory);
    assert_eq!((buffers.capacity(), buffers.available()), (1000, 1000));
    let mut held = buffers.reserve(600);
    held.resize(1500);
    assert_eq!((held.size(), buffers.used(), buffers.available()), (1500, 1500, -500));
    assert_eq!(acme.usage(world.memory).overdrafts, 1);
    held.resize(100);
    assert_eq!((held.size(), world.current(&acme), buffers.available()), (100, 100, 900));
    held.resize(100);
    drop(held);
    assert_eq!(world.current(world.tree.root()), 0);
}

#[test]
fn without_limits_all_addresses_are_free() {
    let world = World::new();
    let acme = world.tree.create("/acme").expect("a new name");
    let buffers = GroupBuffers::new(&acme, world.memory);
    assert_eq!((buffers.capacity(), buffers.available()), (usize::MAX, isize::MAX));
    assert_eq!(format!("{buffers:?}"), "GroupBuffers(/acme)");
}
