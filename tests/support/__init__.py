"""What tests share: repositories, trees described as data, and an independent judge of trees."""
