data {
  int N;
  vector[N] weight;
  vector[N] diam1;
  vector[N] diam2;
  vector[N] canopy_height;
  vector[N] total_height;
  vector[N] density;
  vector[N] group;
}
parameters {
  vector[7] beta;
  real<lower=0> sigma;
}
model {
  for (i in 1 : N) {
    row_vector[7] x = [1, diam1[i], diam2[i], canopy_height[i], total_height[i], density[i], group[i]];
    weight[i] ~ normal(x * beta, sigma);
  }
}
